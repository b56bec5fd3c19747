// Proves that text comes from the tokens of a vocabulary alone: with padding after the tokens, the
// same weights write the same text.

#include "train/generate/generate.h"

#include "gtest/gtest.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

// What new weights write.
std::string TextOf(int64_t vocab_multiple) {
  JobConfig job = TinyJob(FreshDirectory(absl::StrCat("generate-", vocab_multiple)));
  job.model.architecture->fields["vocab"] = int64_t{256};
  job.model.architecture->fields["vocab_multiple"] = vocab_multiple;
  job.optimizer.options["learning_rate"] = 1e-300;
  CHECK(RunJob(job)[0].status.ok());
  std::string text;
  const absl::Status status =
      Generate({.checkpoint = job.checkpoint->directory,
                .prompt = "a",
                .tokens = 40,
                .temperature = 1,
                .seed = 3},
               CpuBackend(), [&](absl::string_view more) { absl::StrAppend(&text, more); });
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

TEST(Generate, PaddingOfTheVocabularyIsNeverWritten) {
  const std::string text = TextOf(1);
  EXPECT_NE(text, "");
  EXPECT_EQ(TextOf(24), text);
}

}  // namespace
}  // namespace trainyard::testing
