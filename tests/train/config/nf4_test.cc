// Proves which jobs may keep their base in NF4, what is refused of them, with which words, and what
// an adapter of such a job is.

#include "train/config/nf4.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "train/config/adapter.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Nf4Sizes {
  int64_t hidden = 128, ffn = 256;
};

std::string Nf4Spec(absl::string_view lines, const Nf4Sizes& sizes = {}) {
  return absl::StrCat(R"(
name: tuned
model: {architecture: {family: llama, layers: 2, heads: 4, kv_heads: 4, head_dim: 32, vocab: 256,
                       max_seq: 64, hidden: )",
                      sizes.hidden, ", ffn: ", sizes.ffn, R"(}}
batch: {global: 2, micro: 1, sequence: 32}
data: {text: {path: corpus.txt}}
optimizer: {adamw: {learning_rate: 0.001}}
steps: 2
init_from: base
adapter: {lora: {base: NF4}}
)",
                      lines, "\n");
}

std::string Nf4Refusal(absl::string_view lines, const Nf4Sizes& sizes = {}) {
  return std::string(ParseAndValidateJob(Nf4Spec(lines, sizes)).status().message());
}

TEST(Nf4Job, HasNumbersOfItsPrecision) {
  for (const auto& [precision, dtype] :
       {std::pair("BF16", DType::kBF16), std::pair("F32", DType::kF32),
        std::pair("F64", DType::kF64)}) {
    const absl::StatusOr<JobConfig> job =
        ParseAndValidateJob(Nf4Spec(absl::StrCat("precision: ", precision)));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(AdapterOf(*job).nf4);
    EXPECT_EQ(LoraNumbersOf(*job)->nf4, dtype);
  }
  JobConfig plain = *ParseAndValidateJob(Nf4Spec(""));
  plain.adapter->lora->base = LoraBase::kAsComputed;
  EXPECT_FALSE(AdapterOf(plain).nf4);
  EXPECT_EQ(LoraNumbersOf(plain)->nf4, std::nullopt);
}

TEST(Nf4Job, IsRefusedInEightBits) {
  EXPECT_THAT(Nf4Refusal("precision: FP8_CURRENT"),
              HasSubstr("adapter.lora.base: wanted AS_COMPUTED in FP8_CURRENT, which rounds the "
                        "weights of layers to 8 bits, found NF4; nearest AS_COMPUTED"));
}

TEST(Nf4Job, IsRefusedForRowsThatAreNoWholeBlocks) {
  EXPECT_THAT(
      Nf4Refusal("", {.hidden = 96}),
      AllOf(HasSubstr("adapter.lora.base: wanted AS_COMPUTED for a model whose linear layers and "
                      "experts have not all a multiple of 64 inputs, found NF4, and "
                      "model.layers.0.self_attn.q_proj with 96; nearest AS_COMPUTED"),
            Not(HasSubstr("k_proj"))));
  EXPECT_THAT(Nf4Refusal("", {.ffn = 160}), HasSubstr("model.layers.0.mlp.down_proj with 160"));
}

TEST(Nf4Job, IsRefusedForExpertsWhoseRowsAreNoWholeBlocks) {
  const auto refusal = [](int64_t ffn) {
    std::string spec = Nf4Spec("");
    const std::string sizes = "family: llama", dense = ", ffn: 256";
    spec.replace(spec.find(dense), dense.size(),
                 absl::StrCat(", moe: {experts: 4, top_k: 2, expert_ffn: ", ffn, "}"));
    spec.replace(spec.find(sizes), sizes.size(), "family: qwen3_moe");
    return std::string(ParseAndValidateJob(spec).status().message());
  };
  EXPECT_EQ(refusal(192), "");
  EXPECT_THAT(refusal(48), HasSubstr("found NF4, and model.layers.0.mlp.experts.*.down_proj with "
                                     "48; nearest AS_COMPUTED"));
}

// Two ranks have whole blocks of all rows, four have not.
TEST(Nf4Job, IsRefusedWhereRanksWouldDivideBlocks) {
  EXPECT_EQ(Nf4Refusal("devices: 2\nparallelism: {tensor: 2}"), "");
  EXPECT_THAT(Nf4Refusal("devices: 4\nparallelism: {tensor: 4}"),
              HasSubstr("parallelism.tensor: wanted a degree that leaves each rank a multiple of "
                        "64 inputs of model.layers.0.self_attn.o_proj.weight, because NF4 has a "
                        "scale for 64 inputs, found 4, which leaves each rank 32 inputs; nearest "
                        "2"));
}

TEST(Nf4Job, OtherNamesAreRefused) {
  EXPECT_THAT(
      std::string(ParseAndValidateJob("name: a\nadapter: {lora: {base: INT8}}").status().message()),
      HasSubstr("adapter.lora.base: wanted one of AS_COMPUTED, NF4"));
}

}  // namespace
}  // namespace trainyard
