// Proves what a spec says of learning from pairs of answers: the defaults of TRL, the names that
// others have for the fields, and what is refused.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr char kPairChat[] = "chat: {path: pairs.jsonl, tokenizer: tok, format: chatml}";

std::string PairSpec(absl::string_view preference, absl::string_view data = kPairChat) {
  return absl::StrCat(R"(
name: tuned
model: {architecture: {family: llama, layers: 2, hidden: 16, ffn: 24, heads: 4, kv_heads: 2,
                       vocab: 256, max_seq: 64}}
batch: {global: 2, micro: 1, sequence: 32}
optimizer: {adamw: {learning_rate: 0.001}}
steps: 2
data: {)",
                      data, "}\npreference: {", preference, "}\n");
}

std::string PairRefusal(absl::string_view preference, absl::string_view data = kPairChat) {
  return std::string(ParseAndValidateJob(PairSpec(preference, data)).status().message());
}

TEST(Preference, HasTheDefaultsOfTrl) {
  const auto job = ParseAndValidateJob(PairSpec(""));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->preference->method, PreferenceMethod::kDpo);
  EXPECT_EQ(job->preference->beta, 0.1);
  const auto orpo = ParseAndValidateJob(PairSpec("method: ORPO, beta: 0.25"));
  ASSERT_TRUE(orpo.ok()) << orpo.status();
  EXPECT_EQ(orpo->preference->method, PreferenceMethod::kOrpo);
  const auto again = ParseAndValidateJob(ResolvedJobText(*orpo));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->preference->method, PreferenceMethod::kOrpo);
  EXPECT_EQ(again->preference->beta, 0.25);
}

TEST(Preference, RefusesWhatItCannotMean) {
  EXPECT_THAT(PairRefusal("beta: 0"), HasSubstr("preference.beta"));
  EXPECT_THAT(PairRefusal("beta: -1"), HasSubstr("preference.beta"));
  EXPECT_THAT(PairRefusal("method: IPO"), HasSubstr("preference.method"));
  EXPECT_THAT(PairRefusal("pref_beta: 1"), HasSubstr("preference.beta"));
  EXPECT_THAT(PairRefusal("loss_type: sigmoid"), HasSubstr("preference.method"));
  EXPECT_THAT(PairRefusal("", "text: {path: corpus.txt}"),
              HasSubstr("preference: wanted data.chat, whose lines are pairs of answers, found "
                        "data.text"));
  EXPECT_THAT(PairRefusal("", "chat: {path: pairs.jsonl, tokenizer: tok, format: segments}"),
              HasSubstr("data.chat.format: wanted a format of chats for pairs of answers"));
}

}  // namespace
}  // namespace trainyard
