// Proves what a spec may say together with model.import: an architecture, and nothing else that
// names the model or its first parameters.

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr char kArchitecture[] =
    "architecture: {family: llama, layers: 2, hidden: 64, ffn: 128, heads: 4, vocab: 256}";

// What is wrong with a spec that has this model; "" if nothing is.
std::string Refusal(const std::string& model, const std::string& more = "") {
  const auto job = ParseAndValidateJob(absl::StrCat(
      "{name: a, model: {", model, "}, batch: {global: 8, micro: 1, sequence: 64}, ",
      "data: {synthetic: {}}, optimizer: {adamw: {learning_rate: 3e-4}}, steps: 10", more, "}"));
  return job.ok() ? "" : std::string(job.status().message());
}

TEST(ImportSpec, NeedsTheArchitectureThatTheCommandLineAdds) {
  EXPECT_EQ(Refusal(absl::StrCat("import: dir, ", kArchitecture)), "");
  EXPECT_THAT(Refusal("import: dir"),
              HasSubstr("model.import: wanted model.architecture beside it, the \"model\" that "
                        "`trainyard import dir -o json` prints"));
  EXPECT_THAT(Refusal("import: dir, overrides: {layers: 1}"), HasSubstr("model.import: wanted"));
}

TEST(ImportSpec, ExcludesOtherChoices) {
  EXPECT_THAT(Refusal("import: dir, preset: llama3-8b"),
              HasSubstr("model: wanted preset or import, found both"));
  EXPECT_THAT(Refusal(absl::StrCat("import: dir, overrides: {layers: 1}, ", kArchitecture)),
              HasSubstr("model.overrides: wanted none beside architecture"));
  EXPECT_THAT(Refusal(absl::StrCat("import: dir, ", kArchitecture), ", init_from: other"),
              HasSubstr("init_from: wanted none beside model.import"));
}

TEST(ImportSpec, IgnoresOnlyKeysOfAnImport) {
  const std::string import = absl::StrCat("import: dir, ", kArchitecture);
  EXPECT_EQ(Refusal(absl::StrCat(import, ", ignore_keys: [fancy, rope_scaling.finetuned]")), "");
  EXPECT_THAT(Refusal("preset: llama3-8b, ignore_keys: [fancy]"),
              HasSubstr("model.ignore_keys: wanted none without model.import"));
  EXPECT_THAT(Refusal(absl::StrCat(import, ", ignore_keys: ['']")),
              HasSubstr("model.ignore_keys: wanted keys of 1 to 256 bytes"));
  std::string many = "a";
  for (int i = 0; i < 64; ++i) absl::StrAppend(&many, ", a");
  EXPECT_THAT(Refusal(absl::StrCat(import, ", ignore_keys: [", many, "]")),
              HasSubstr("model.ignore_keys: wanted at most 64 keys, found 65"));
}

TEST(ImportSpec, IsAPathLikeOthers) {
  EXPECT_THAT(Refusal(absl::StrCat("import: a/../b, ", kArchitecture)),
              HasSubstr("model.import: wanted a path without \"..\""));
}

}  // namespace
}  // namespace trainyard
