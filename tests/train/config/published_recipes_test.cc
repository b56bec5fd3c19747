// Proves that the spec of each published run is legal on the published number of GPUs
// and divides the batch as the page does. make.py writes the specs, and published_recipes_made_test
// compares them with what it writes.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/published_table.h"
#include "train/config/parse.h"
#include "train/config/resolve_model.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"

namespace trainyard::testing {
namespace {

TEST(PublishedRecipes, AreLegalAndDivideAsThePagesDo) {
  int specs = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    ++specs;
    SCOPED_TRACE(run.name());
    const auto job = ParseAndValidateJob(ReadPublished(run.name() + ".yaml"));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(ParseJobConfig(ResolvedJobText(*job)).ok());
    EXPECT_EQ(job->name, run.name());
    EXPECT_EQ(job->devices, run.number("gpus"));
    EXPECT_EQ(job->batch.global, run.number("gbs"));
    EXPECT_EQ(job->labels.at("page"), run.text("page"));
    if (run.has("dp")) {
      EXPECT_EQ(DataParallel(*job), run.number("dp"));
    }
    if (run.has("fsdp")) {
      EXPECT_EQ(DataParallel(*job), run.number("fsdp"));
    }
    // AutoModel's accumulation counts batches of `lbs` sequences, which its pipeline divides.
    const double of_batch = run.has("lbs") ? run.number("lbs") / run.number("mbs") : 1;
    if (run.has("ga")) {
      EXPECT_EQ(double(AccumulationSteps(*job)), run.number("ga") * of_batch);
    }
    EXPECT_EQ(job->adapter.has_value(), run.text("task") == "lora");
    const auto layers = run.text("preset").find("proxy-");
    if (layers != std::string::npos) {
      EXPECT_EQ(absl::StrCat(FactsOf(*ResolveModel(job->model)).layers),
                run.text("preset").substr(layers + 6));
    }
  }
  EXPECT_EQ(specs, 91);
}

}  // namespace
}  // namespace trainyard::testing
