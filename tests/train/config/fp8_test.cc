// Proves what a job in 8 bits may not ask for, each with its field and the nearest legal value: a
// layout that divides the blocks of a weight, and sections that leave nothing in 8 bits.

#include "train/config/fp8.h"

#include <gmock/gmock.h>

#include "tests/train/config/check.h"
#include "train/config/precision.h"
#include "train/data/synthetic.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum PrecisionName;

// Queries 512 wide, keys and values 256 each, ffn 768. Eight devices.
JobConfig Job(PrecisionName precision, int64_t tensor) {
  JobConfig job;
  job.name = "eight-bits";
  job.model.architecture = {"llama",
                            {{"layers", 4},
                             {"hidden", 512},
                             {"ffn", 768},
                             {"heads", 8},
                             {"kv_heads", 4},
                             {"head_dim", 64},
                             {"vocab", 256},
                             {"max_seq", 2048}}};
  job.precision = precision;
  job.batch = {.global = 8, .micro = 1, .sequence = 1024};
  job.data = SyntheticData{};
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 10;
  job.devices = 8;
  job.parallelism.tensor = tensor;
  return job;
}

TEST(Fp8, WholeBlocksAreLegalWhateverTheLayout) {
  EXPECT_THAT(Check(Job(kFP8Blockwise, 1)), IsEmpty());
  EXPECT_THAT(Check(Job(kFP8Blockwise, 2)), IsEmpty());
  for (const PrecisionName precision : {kFP8Delayed, kFP8Current, kFP8Rowwise}) {
    EXPECT_THAT(Check(Job(precision, 4)), IsEmpty()) << Name(precision);
  }
  JobConfig odd = Job(kFP8Blockwise, 1);  // The last blocks of a dim may be smaller.
  odd.model.architecture->fields["ffn"] = 700;
  EXPECT_THAT(Check(odd), IsEmpty());
}

TEST(Fp8, ADividedBlockIsRefusedWithItsWeightAndTheNearestDegree) {
  const auto list = Check(Job(kFP8Blockwise, 4));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "parallelism.tensor");
  EXPECT_EQ(list[0].wanted,
            "a degree that leaves each rank a multiple of 128 outputs of "
            "model.layers.0.self_attn.k_proj.weight, because FP8_BLOCKWISE has a scale for 128 "
            "outputs");
  EXPECT_EQ(list[0].found, "4, which leaves each rank 64 outputs");
  EXPECT_EQ(list[0].nearest, "2");
  EXPECT_THAT(Check(Job(kFP8Blockwise, 2)), IsEmpty());
}

TEST(Fp8, ADividedBlockOfTokensIsRefusedWithTheNearestLength) {
  JobConfig job = Job(kFP8Blockwise, 1);
  job.parallelism.context = 2;
  EXPECT_THAT(Check(job), IsEmpty());
  job.batch.sequence = 768;  // 384 for a rank, in two halves.
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "batch.sequence");
  EXPECT_THAT(list[0].wanted, HasSubstr("2 x parallelism.context (2) x 128 = 512"));
  EXPECT_EQ(list[0].nearest, "512");
  job.precision = kFP8Rowwise;
  EXPECT_THAT(Check(job), IsEmpty());
}

TEST(Fp8, WhereNoLengthIsLegalTheDegreeIsNamed) {
  JobConfig job = Job(kFP8Blockwise, 1);
  job.parallelism.context = 8;
  job.batch.sequence = 1024;
  job.model.architecture->fields["max_seq"] = int64_t{1024};
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "parallelism.context");
  EXPECT_EQ(list[0].found, "8, which leaves each rank 64 tokens");
  EXPECT_EQ(list[0].nearest, "4");
  job.parallelism.context = 4;
  EXPECT_THAT(Check(job), IsEmpty());
}

// Bug it must catch: each rank rounds its part of a key's gradient, and the layout computes what no
// other does.
TEST(Fp8, TensorRanksDoNotShareKeys) {
  JobConfig job = Job(kFP8Current, 8);
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "parallelism.tensor");
  EXPECT_THAT(list[0].wanted, HasSubstr("at most kv_heads = 4 in FP8_CURRENT"));
  EXPECT_EQ(list[0].nearest, "4");
  job.precision = kFP8Blockwise;  // Four ranks would divide blocks.
  EXPECT_EQ(Check(job)[0].nearest, "2");
  job.precision = kBF16;
  EXPECT_THAT(Check(job), IsEmpty());
}

TEST(Fp8, ASectionBelongsToAPrecisionInEightBits) {
  JobConfig job = Job(kBF16, 1);
  job.fp8 = Fp8Config{.first_layers_in_bf16 = 1};
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "fp8");
  EXPECT_EQ(list[0].wanted, "none for BF16, in which no layer is in 8 bits");
}

TEST(Fp8, ALayerMustBeLeftInEightBits) {
  JobConfig job = Job(kFP8Current, 1);
  job.fp8 = Fp8Config{.first_layers_in_bf16 = 2, .last_layers_in_bf16 = 1};
  EXPECT_THAT(Check(job), IsEmpty());
  job.fp8->last_layers_in_bf16 = 2;
  auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "fp8.last_layers_in_bf16");
  EXPECT_EQ(list[0].nearest, "1");
  job.fp8 = Fp8Config{.first_layers_in_bf16 = 4};
  list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "fp8.first_layers_in_bf16");
  EXPECT_EQ(list[0].nearest, "3");
}

// Other violations come first: what follows from sizes that are not legal would say nothing.
TEST(Fp8, AnswersOnlyForJobsThatAreLegalOtherwise) {
  JobConfig job = Job(kFP8Blockwise, 4);
  job.steps = 0;
  const auto list = Check(job);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].field, "steps");
}

}  // namespace
}  // namespace trainyard
