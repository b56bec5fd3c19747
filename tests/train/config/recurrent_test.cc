// Proves what is refused for models with recurrent layers: layouts whose parts are shorter than the
// convolution, and numbers of tensor ranks that do not divide heads and groups. Each answer has the
// field and the nearest legal value.

#include <gmock/gmock.h>

#include "tests/train/config/check.h"
#include "train/config/validate.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// On `ranks` ranks. The convolution looks back seven tokens.
JobConfig Hybrid(int64_t ranks, int64_t sequence) {
  JobConfig job;
  job.name = "hybrid";
  job.model.preset = "nemotron3-nano-30b";
  job.model.overrides = {"",
                         {{"hybrid_pattern", std::string("MEM*")},
                          {"hidden", 64},
                          {"heads", 8},
                          {"kv_heads", 2},
                          {"head_dim", 8},
                          {"vocab", 256},
                          {"max_seq", 256},
                          {"mamba_heads", 8},
                          {"mamba_groups", 4},
                          {"mamba_taps", 8},
                          {"moe.experts", 8},
                          {"moe.expert_ffn", 32},
                          {"moe.shared_ffn", 64}}};
  job.batch = {.global = 2, .micro = 2, .sequence = sequence};
  job.data = SyntheticData{};
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 10;
  job.devices = ranks;
  return job;
}

void ExpectOne(const JobConfig& job, const char* field, const std::string& description) {
  const std::vector<FieldViolation> found = Check(job);
  ASSERT_EQ(found.size(), 1u) << (found.empty() ? "" : found[1].Description());
  EXPECT_EQ(found[0].field, field);
  EXPECT_THAT(found[0].Description(), HasSubstr(description));
}

TEST(RecurrentLayers, TakeDocumentsThatDoNotSeeEachOther) {
  JobConfig job = Hybrid(1, 64);
  job.data = IndexedData{.prefix = "corpus", .reset_attention_mask = true};
  EXPECT_THAT(Check(job), IsEmpty());
  job.data = SyntheticData{.document_tokens = 16};
  EXPECT_THAT(Check(job), IsEmpty());
}

TEST(RecurrentLayers, HavePartsAsLongAsTheConvolution) {
  JobConfig job = Hybrid(4, 56);
  job.parallelism.context = 4;
  EXPECT_THAT(Check(job), IsEmpty());
  job.batch.sequence = 48;
  ExpectOne(job, "batch.sequence",
            "wanted at least 2 x context x the 7 tokens that the model's convolutions look back = "
            "56, found 48; nearest 56");
  job = Hybrid(1, 4);  // One rank has all of the sequence.
  EXPECT_THAT(Check(job), IsEmpty());
}

TEST(RecurrentLayers, AreDividedOverTensorRanksByHeadsAndGroups) {
  JobConfig job = Hybrid(4, 64);
  job.parallelism.tensor = 4;
  EXPECT_THAT(Check(job), IsEmpty());
  job = Hybrid(8, 64);
  job.parallelism.tensor = 8;
  ExpectOne(job, "parallelism.tensor", "mamba_heads = 8, mamba_groups = 4");
  EXPECT_THAT(Check(job)[0].Description(), HasSubstr("found 8; nearest 4"));
  job.model.overrides->fields["mamba_groups"] = 8;
  EXPECT_THAT(Check(job), IsEmpty());
}

}  // namespace
}  // namespace trainyard
