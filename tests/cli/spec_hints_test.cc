// Proves what a spec's errors and notes say about sections of which a spec has only one: the hint
// names the section that the spec has, what is missing is called missing, and what a change takes
// out is told.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "cli/spec.h"
#include "train/config/validate.h"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Errors(const std::string& text) {
  const auto document = SpecDocument::Parse("s.yaml", text, {});
  if (!document.ok()) return std::string(document.status().message());
  return std::string(document->Explain(document->ToProto().status()).message());
}

std::vector<std::string> Notes(const std::string& text, const std::vector<std::string>& sets) {
  const auto document = SpecDocument::Parse("s.yaml", text, sets);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? document->notes() : std::vector<std::string>();
}

// Bug it must catch: whoever follows the hint replaces the optimizer of the spec.
TEST(SpecHints, NameTheSectionThatTheSpecHas) {
  const std::string lion = "optimizer: {lion: {learning_rate: 1e-4}, schedule: {wsd: {}}}\n";
  const std::string rate = "unknown field; here it is optimizer.lion.learning_rate";
  EXPECT_THAT(Errors(lion + "lr: 3"), HasSubstr("s.yaml:2: lr: " + rate));
  EXPECT_THAT(Errors("optimizer: {lion: {lr: 3}}"), HasSubstr("optimizer.lion.lr: " + rate));
  EXPECT_THAT(Errors("optimizer: {lr: 3, lion: {}}"), HasSubstr("optimizer.lr: " + rate));
  EXPECT_THAT(Errors(lion + "lr_warmup_iters: 3"),
              HasSubstr("here it is optimizer.schedule.wsd.warmup_steps"));
  EXPECT_THAT(Errors("lr: 3"), HasSubstr("here it is optimizer.adamw.learning_rate"));
  EXPECT_THAT(Errors("lr_warmup_iters: 3"),
              HasSubstr("here it is optimizer.schedule.cosine.warmup_steps"));
}

// A key that an import reads is a name of the field, whatever family it is of.
TEST(SpecHints, KnowTheKeysOfAConfigJson) {
  EXPECT_THAT(Errors("n_embd: 3"), HasSubstr("here it is model.overrides.hidden"));
  EXPECT_THAT(Errors("model: {overrides: {rope_theta: 3}}"), HasSubstr("here it is rope_base"));
}

// Bug it must catch: a name that only the proto file declares is not translated.
TEST(SpecHints, KnowTheNamesOfMegatronDiffusersAndPeft) {
  EXPECT_THAT(Errors("num_query_groups: 3"), HasSubstr("here it is model.overrides.kv_heads"));
  EXPECT_THAT(Errors("num_embeds_ada_norm: 3"),
              HasSubstr("here it is model.overrides.num_classes"));
  EXPECT_THAT(Errors("model: {architecture: {moe: {moe_router_topk: 3}}}"),
              HasSubstr("here it is moe.top_k"));
  EXPECT_THAT(Errors("data_path: a"), HasSubstr("here it is data.blend"));
  EXPECT_THAT(Errors("adapter: {lora: {r: 16}}"), HasSubstr("here it is adapter.lora.rank"));
  EXPECT_THAT(Errors("adapter: {lora: {lora_alpha: 16}}"),
              HasSubstr("here it is adapter.lora.alpha"));
}

// Bug it must catch: one path on the command line takes out a section of the spec without a word.
TEST(SpecHints, AChangeSaysWhatItReplaces) {
  const std::string spec = "optimizer: {lion: {learning_rate: 1e-4}}\ndata: {synthetic: {}}\n";
  EXPECT_THAT(
      Notes(spec, {"optimizer.adamw.beta1=0.8", "data.text.path=a"}),
      ElementsAre("--set optimizer.adamw.beta1=0.8 replaces optimizer.lion and all that was "
                  "set there",
                  "--set data.text.path=a replaces data.synthetic and all that was set "
                  "there"));
  EXPECT_THAT(Notes(spec, {"optimizer.lion.beta1=0.8", "data.synthetic={}", "steps=3"}), IsEmpty());
}

// Bug it must catch: a field that nobody wrote is "found" with a value that nobody wrote.
TEST(SpecHints, AMissingOptimizerOrRateIsCalledMissing) {
  const auto checked = [](const std::string& text) {
    const auto document = SpecDocument::Parse("s.yaml", text, {});
    return std::string(document->Explain(ParseAndValidateJob(text).status()).message());
  };
  const std::string rest = "name: a\n";
  EXPECT_THAT(checked(rest), AllOf(HasSubstr("s.yaml: optimizer: wanted one of adamw, lion, "),
                                   HasSubstr("with its learning_rate, found none"),
                                   Not(HasSubstr("optimizer.adamw"))));
  EXPECT_THAT(checked(rest + "optimizer:"), HasSubstr("s.yaml:2: optimizer: wanted one of adamw"));
  EXPECT_THAT(checked(rest + "optimizer: {clip_norm: 1}"), HasSubstr("optimizer: wanted one of"));
  for (const char* name : {"adamw", "lion"}) {
    EXPECT_THAT(checked(absl::StrCat(rest, "optimizer: {", name, ": {beta1: 0.8}}")),
                HasSubstr(absl::StrCat("s.yaml:2: optimizer.", name,
                                       ".learning_rate: wanted 0 < x <= 10, found none")));
  }
  // A rate of 0 that somebody wrote is another mistake. It reaches the controller as one.
  const auto zero =
      SpecDocument::Parse("s.yaml", "optimizer: {adamw: {learning_rate: 0}}", {})->ToProto();
  ASSERT_TRUE(zero.ok()) << zero.status();
  EXPECT_TRUE(zero->optimizer().adamw().has_learning_rate());
  EXPECT_THAT(checked("optimizer: {adamw: {learning_rate: 0}}"),
              HasSubstr("optimizer.adamw.learning_rate: wanted 0 < x <= 10, found 0"));
}

}  // namespace
}  // namespace trainyard::cli
