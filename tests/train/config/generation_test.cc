// Proves what a spec says of texts that a model writes after validations: the defaults, which
// tokenizer prompts have, and what is refused.

#include "train/config/generation.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr char kTextData[] = "text: {path: corpus.txt, validation_fraction: 0.1}";
constexpr char kSynthetic[] = "synthetic: {}";

std::string GenerationSpec(absl::string_view generate, absl::string_view data, int vocab) {
  return absl::StrCat(R"(
name: writes
model: {architecture: {family: llama, layers: 2, hidden: 16, ffn: 24, heads: 4, kv_heads: 2,
                       vocab: )",
                      vocab, R"(, max_seq: 64}}
batch: {global: 2, micro: 1, sequence: 32}
optimizer: {adamw: {learning_rate: 0.001}}
steps: 2
data: {)",
                      data, "}\nvalidation: {every_steps: 1, generate: {", generate, "}}\n");
}

std::string GenerationRefusal(absl::string_view generate, absl::string_view data = kTextData,
                              int vocab = 256) {
  return std::string(ParseAndValidateJob(GenerationSpec(generate, data, vocab)).status().message());
}

GenerationConfig ReadGeneration(absl::string_view generate, absl::string_view data,
                                int vocab = 256) {
  const auto job = ParseAndValidateJob(GenerationSpec(generate, data, vocab));
  CHECK(job.ok()) << job.status();
  const auto again = ParseAndValidateJob(ResolvedJobText(*job));
  CHECK(again.ok()) << again.status();
  return *again->validation->generate;
}

TEST(Generation, HasDefaultsThatAResolvedJobKeeps) {
  const GenerationConfig read = ReadGeneration("prompts: [In the beginning, And]", kTextData);
  EXPECT_THAT(read.prompts, ::testing::ElementsAre("In the beginning", "And"));
  EXPECT_EQ(read.tokens, 64);
  EXPECT_EQ(read.temperature, 0.8);
  EXPECT_EQ(read.tokenizer, "");
  const GenerationConfig given =
      ReadGeneration("prompts: [A], tokens: 3, temperature: 0", kTextData);
  EXPECT_EQ(given.tokens, 3);
  EXPECT_EQ(given.temperature, 0);
}

// Of chats, that of the chats. Data whose tokens are numbers say nothing of it.
TEST(Generation, TakesTheTokenizerOfTheData) {
  constexpr char kChats[] =
      "chat: {path: c.jsonl, tokenizer: tok, format: chatml, validation_fraction: 0.1}";
  EXPECT_EQ(ReadGeneration("prompts: [A]", kChats, 2048).tokenizer, "tok");
  EXPECT_EQ(ReadGeneration("prompts: [A]", kSynthetic).tokenizer, "");
  EXPECT_EQ(ReadGeneration("prompts: [A], tokenizer: mine", kSynthetic, 2048).tokenizer, "mine");
  // Files of tokens may say it to the ranks.
  constexpr char kTokens[] = "indexed: {prefix: tokens, validation_fraction: 0.1}";
  EXPECT_EQ(ReadGeneration("prompts: [A]", kTokens, 2048).tokenizer, "");
  EXPECT_THAT(GenerationRefusal("prompts: [A]", kSynthetic, 2048),
              HasSubstr("validation.generate.tokenizer: wanted the tokenizer of a model with a "
                        "vocabulary of 2048, found none"));
  EXPECT_THAT(GenerationRefusal("prompts: [A], tokenizer: mine"),
              HasSubstr("validation.generate.tokenizer: wanted none, because the data's tokens are "
                        "bytes, found \"mine\""));
}

TEST(Generation, RefusesWhatItCannotWrite) {
  EXPECT_THAT(GenerationRefusal(""),
              HasSubstr("validation.generate.prompts: wanted 1 to 8 texts, found 0"));
  EXPECT_THAT(GenerationRefusal("prompts: [a, b, c, d, e, f, g, h, i]"),
              HasSubstr("found 9; nearest 8"));
  EXPECT_THAT(
      GenerationRefusal("prompts: [a, '']"),
      HasSubstr("validation.generate.prompts[1]: wanted a text of 1 to 512 bytes, found 0"));
  EXPECT_THAT(GenerationRefusal(absl::StrCat("prompts: [", std::string(513, 'x'), "]")),
              HasSubstr("513"));
  EXPECT_THAT(GenerationRefusal("prompts: [a], tokens: 2000"),
              HasSubstr("validation.generate.tokens"));
  EXPECT_THAT(GenerationRefusal("prompts: [a], temperature: -1"),
              HasSubstr("validation.generate.temperature"));
  EXPECT_THAT(GenerationRefusal("prompts: [a]",
                                "chat: {path: c.jsonl, tokenizer: t, format: segments, "
                                "validation_fraction: 0.1}"),
              HasSubstr("data.chat.format: wanted a format of chats, in which prompts are "
                        "questions"));
}

}  // namespace
}  // namespace trainyard
