// Proves which tensor sizes a padded vocabulary allows, and that a refusal names the field that
// helps.

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

// What is wrong with a job on so many tensor ranks; "" if nothing is.
std::string Refusal(int tensor, int vocab, int multiple) {
  const auto job = ParseAndValidateJob(absl::StrCat(
      "{name: a, model: {architecture: {family: llama, layers: 2, hidden: 64, ffn: 128, heads: 4, "
      "vocab: ",
      vocab, ", vocab_multiple: ", multiple, "}}, parallelism: {tensor: ", tensor, "}, devices: ",
      tensor, ", batch: {global: 8, micro: 1, sequence: 64}, data: {synthetic: {}}, ",
      "optimizer: {adamw: {learning_rate: 3e-4}}, steps: 10}"));
  return job.ok() ? "" : std::string(job.status().message());
}

TEST(PaddedVocabulary, MakesATensorSizeLegal) {
  EXPECT_EQ(Refusal(4, 256, 1), "");
  EXPECT_THAT(Refusal(4, 257, 1), HasSubstr("vocab = 257 (or vocab_multiple = 4, found 1)"));
  EXPECT_EQ(Refusal(4, 257, 4), "");
  EXPECT_EQ(Refusal(2, 257, 128), "");
  EXPECT_THAT(Refusal(4, 257, 6),
              HasSubstr("vocab = 257 rounded up to 258 (or vocab_multiple = 12, found 6)"));
}

TEST(PaddedVocabulary, LeavesNoRankWithPaddingAlone) {
  EXPECT_THAT(Refusal(2, 257, 1024),
              HasSubstr("vocab = 257 rounded up to 1024 (or vocab_multiple = 2, found 1024)"));
  EXPECT_THAT(Refusal(4, 5, 4), HasSubstr("vocab = 5 rounded up to 8 and the 64 tokens"));
}

}  // namespace
}  // namespace trainyard
