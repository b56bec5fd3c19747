// Proves that no precision, axis or schedule falls through: each that the API names has a row in
// the engine's table, and the service passes precisions and sizes on as they are.

#include "train/config/precision.h"

#include <gtest/gtest.h>

#include <set>

#include "controller/service/convert_job.h"
#include "tests/controller/testing/server_fixture.h"
#include "train/pipeline/schedule.h"

namespace trainyard::controller {
namespace {

class PrecisionTest : public ServerFixture {};

TEST_F(PrecisionTest, EachOfTheApiIsOneOfTheEngine) {
  size_t named = 0;
  for (int i = 0; i < v1::Precision_descriptor()->value_count(); ++i) {
    const auto value = v1::Precision(v1::Precision_descriptor()->value(i)->number());
    if (value == v1::PRECISION_UNSPECIFIED) continue;
    ++named;
    v1::JobSpec spec = Spec();
    spec.set_precision(value);
    const auto read = FromProto(spec);
    ASSERT_TRUE(read.ok()) << read.status();
    const JobFacts& facts = (*read)->facts;
    EXPECT_EQ("PRECISION_" + facts.precision, v1::Precision_Name(value));
    EXPECT_EQ(facts.cpu_only, facts.precision == "F64");
  }
  EXPECT_EQ(named, Precisions().size()) << "the table has a precision that the API cannot name";
}

TEST(AxisTest, EachOfTheApiIsOneOfTheTable) {
  std::set<std::string> api, table;
  for (int i = 0; i < v1::Parallelism::descriptor()->field_count(); ++i) {
    const auto* field = v1::Parallelism::descriptor()->field(i);
    if (field->enum_type() == nullptr) api.insert(field->name());
  }
  const JobFacts facts;
  ForEachAxis(facts, [&](const JobAxis& axis, uint32_t) { table.insert(axis.name); });
  EXPECT_EQ(api, table);
}

TEST(AxisTest, ASizeKeepsItsAxisBetweenStructs) {
  const ParallelismConfig config = {
      .tensor = 2, .pipeline = 3, .virtual_pipeline = 11, .context = 5, .expert = 7};
  JobFacts facts;
  CopyAxes(config, facts);
  EXPECT_EQ(facts.tensor, 2u);
  EXPECT_EQ(facts.pipeline, 3u);
  EXPECT_EQ(facts.context, 5u);
  EXPECT_EQ(facts.expert, 7u);
  EXPECT_EQ(facts.virtual_pipeline, 11u);
  EXPECT_EQ(ModelRanks(facts), 2 * 3 * 5);
}

TEST(ScheduleTest, EachOfTheApiIsOneOfTheEngine) {
  std::set<std::string> api, engine;
  for (int i = 0; i < v1::PipelineSchedule_descriptor()->value_count(); ++i) {
    api.insert(v1::PipelineSchedule_descriptor()->value(i)->name());
  }
  api.erase("PIPELINE_SCHEDULE_UNSPECIFIED");
  for (const ScheduleKind& kind : AllSchedules()) {
    engine.insert(absl::StrCat("PIPELINE_SCHEDULE_", kind.name));
  }
  EXPECT_EQ(api, engine);
}

}  // namespace
}  // namespace trainyard::controller
