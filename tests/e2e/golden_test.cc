// Proves training from the spec to the update against somebody else's arithmetic: 30 steps of each
// architecture through the service, a rank killed in step 11 and resumed from step 8, have the
// losses, gradient norms, learning rates and validation losses of a public implementation
// (tests/golden/make_training.py). Those named eod do not count the targets behind the ends of
// documents.
//
// Bugs it must catch are those that all layouts have in common, which comparing a run with itself
// cannot show: a setting of the optimizer that never arrives, a rate that is a step late, a seed
// that is not the job's, validation on other samples, a schedule of another shape, a loss that is
// divided by the targets of a rank or a micro-batch, or by all tokens.

#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-8;  // Relative; 1e-10 on the machine that it was written on.

std::string Golden(const std::string& name) {
  return std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/training/" + name;
}

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class GoldenTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTraining, IsThatOfThePublicImplementation) {
  const std::string example = GetParam();
  Service service(
      {.devices_per_worker = 2, .worker_flags = {"--trainer", FaultyTrainer("kill:11")}});
  const std::string text = ReadFile(Golden("corpus.txt")).value();
  service.Write("corpus.txt", text);
  // Of which each word is a document.
  const std::string words = service.Write("words.txt", absl::StrReplaceAll(text, {{" ", "\n"}}));
  const Finished made = service.Run("trainyard-tokenize", {"--documents", "line", words, "words"});
  ASSERT_EQ(made.exit_code, 0) << made;
  const std::string spec = service.Write("spec.yaml", ReadFile(Golden(example + ".yaml")).value());
  const Finished submitted = service.Trainyard({"submit", spec, "-q"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted;
  const std::string id = submitted.output.substr(0, submitted.output.find('\n'));
  ASSERT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  EXPECT_EQ(service.Job(id).at("restarts"), 1);
  EXPECT_THAT(service.Trainyard({"events", id}).output,
              ::testing::HasSubstr("resuming from the checkpoint of step 8"));

  const std::vector<nlohmann::json> wanted = Lines(Golden(example + ".golden"));
  const std::vector<nlohmann::json> found = service.Steps(id);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(found[i].dump());
    for (const auto& [field, value] : wanted[i].items()) {
      ASSERT_TRUE(found[i].contains(field)) << "step " << i + 1 << " has no " << field;
      const double want = value;
      EXPECT_NEAR(found[i].at(field).get<double>(), want, kTolerance * std::abs(want)) << field;
    }
    EXPECT_EQ(found[i].contains("validation_loss"), wanted[i].contains("validation_loss"));
  }
  const std::string name = service.Job(id).at("spec").at("name");
  // `checkpoint.keep: 3` of steps 4, 8, ... and 30.
  const Finished kept = service.Trainyard({"checkpoint", "list", "runs/" + name, "-o", "jsonl"});
  std::vector<int> steps;
  for (absl::string_view line : absl::StrSplit(kept.output, '\n', absl::SkipEmpty())) {
    steps.push_back(nlohmann::json::parse(line).at("step"));
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(24, 28, 30)) << kept;
}

INSTANTIATE_TEST_SUITE_P(Specs, GoldenTraining,
                         ::testing::Values("llama", "llama_eod", "gpt3", "gpt3_eod", "qwen3_moe",
                                           "qwen3_moe_eod"),
                         [](const auto& spec) { return std::string(spec.param); });

}  // namespace
}  // namespace trainyard::testing
