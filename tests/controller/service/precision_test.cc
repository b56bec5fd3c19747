// Proves that no precision, axis or schedule falls through: each that the API names has a row in
// the engine's table, and the service passes precisions and sizes on as they are.

#include "train/config/precision.h"

#include <gmock/gmock.h>

#include <set>

#include "controller/service/convert_job.h"
#include "tests/controller/testing/server_fixture.h"
#include "train/config/parse.h"
#include "train/pipeline/schedule.h"

namespace trainyard::controller {
namespace {

class PrecisionTest : public ServerFixture {};
class ScheduleTest : public ServerFixture {};

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
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT32) {
      api.insert(field->name());
    }
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

// A schedule need not have a value of the enum, but the enum names no others.
TEST_F(ScheduleTest, EachOfTheEnumIsOneOfTheEngine) {
  std::set<std::string> engine;
  for (const ScheduleKind& kind : AllSchedules()) {
    engine.insert(absl::StrCat("PIPELINE_SCHEDULE_", kind.name));
  }
  for (int i = 1; i < v1::PipelineSchedule_descriptor()->value_count(); ++i) {
    EXPECT_THAT(engine, ::testing::Contains(v1::PipelineSchedule_descriptor()->value(i)->name()));
  }
}

// Bug it must catch: a name that is lost on its way, so that the job trains under the default.
TEST_F(ScheduleTest, EachOfTheEngineIsTakenByName) {
  for (const ScheduleKind& kind : AllSchedules()) {
    v1::JobSpec spec = Spec();
    spec.mutable_parallelism()->set_schedule_name(std::string(kind.name));
    spec.mutable_parallelism()->set_pipeline(2);
    spec.mutable_parallelism()->set_virtual_pipeline(uint32_t(kind.least_chunks));
    spec.set_devices(2);
    const auto read = FromProto(spec);
    ASSERT_TRUE(read.ok()) << read.status();
    const auto resolved = ParseJobConfig((*read)->config);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->parallelism.schedule, &kind);
    EXPECT_THAT((*read)->config, ::testing::HasSubstr(absl::StrCat("\"schedule\":\"", kind.name)));
    EXPECT_THAT((*read)->config, ::testing::Not(::testing::HasSubstr("schedule_name")));
  }
}

TEST_F(ScheduleTest, ANameThatIsUnknownOrContradictsTheEnumIsRefusedAtTheField) {
  v1::JobSpec spec = Spec();
  spec.mutable_parallelism()->set_schedule_name("V_MINI");
  EXPECT_THAT(std::string(FromProto(spec).status().message()),
              ::testing::AllOf(::testing::StartsWith("parallelism.schedule: wanted one of GPIPE, "),
                               ::testing::EndsWith(", found \"V_MINI\"; nearest V_MIN")));
  spec.mutable_parallelism()->set_schedule_name("GPIPE");
  spec.mutable_parallelism()->set_schedule(v1::PIPELINE_SCHEDULE_ONE_F_ONE_B);
  EXPECT_EQ(FromProto(spec).status().message(),
            "parallelism.schedule: wanted the same as in schedule_name, or only one of them, found "
            "ONE_F_ONE_B and GPIPE");
  spec.mutable_parallelism()->set_schedule(v1::PIPELINE_SCHEDULE_GPIPE);
  EXPECT_TRUE(FromProto(spec).ok());
}

}  // namespace
}  // namespace trainyard::controller
