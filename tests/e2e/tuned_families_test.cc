// Proves, for each family of language models, that the commands of docs/fine_tuning.md work on a
// directory that `transformers` wrote: `submit` of recipes/finetune/lora.yaml, `generate --chat`,
// `export` and `export --merge`. What was exported is imported again, and finds every answer as
// likely as the run does: to the last digits in F64, and closely in BF16, in which the recipe
// trains. tests/golden/check_commands.py compares the same exports with PEFT and `transformers`.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "models/arch/registry.h"
#include "tests/e2e/service.h"
#include "tests/e2e/tiny_chats.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// The models of tests/golden/hf have 13 tokens: the words of chatml, and so many letters.
constexpr int kLetters = 8;

// Layers whose adapters PEFT has names for, where these are not all layers of `all-linear`.
const std::map<std::string, std::string>& NamedByPeft() {
  static const std::map<std::string, std::string> targets = {
      {"deepseek_v3", "['*.self_attn.*']"},
      {"nemotron_h", "['*.in_proj', '*.q_proj', '*.v_proj']"}};
  return targets;
}

std::vector<std::string> LanguageFamilies() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    if (FactsOf(family.presets.front().config).vocab > 0) names.push_back(family.name);
  }
  return names;
}

std::string Source(const std::string& path) {
  return absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/", path);
}

// One service for all families: starting one takes as long as fine-tuning a model.
class TunedFamily : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    service_ = new Service({.workers = 1});
    std::string chats;
    for (int i = 0; i < 40; ++i) {
      const auto letter = [](int number) { return std::string(1, char('a' + number % kLetters)); };
      const nlohmann::json line = {{"prompt", letter(i)}, {"completion", letter(3 * i + 1)}};
      absl::StrAppend(&chats, line.dump(), "\n");
    }
    service_->Write("chats.jsonl", chats);
  }
  static void TearDownTestSuite() {
    delete service_;
    service_ = nullptr;
  }

  void SetUp() override {
    std::filesystem::copy(Source("tests/golden/hf/" + GetParam()),
                          service_->directory() + "/" + GetParam());
    service_->Write(GetParam() + "/tokenizer.json", TinyTokenizer(kLetters));
  }

  static std::string Run(const std::vector<std::string>& words) {
    const Finished finished = service_->Trainyard(words);
    EXPECT_EQ(finished.exit_code, 0) << ::testing::PrintToString(words) << finished;
    return finished.output;
  }

  std::vector<std::string> Submit(const std::string& run, const std::string& precision,
                                  const std::string& targets) const {
    std::vector<std::string> words = {"submit", Source("recipes/finetune/lora.yaml")};
    for (const std::string& set :
         {"model.import=" + GetParam(), std::string("data.chat.path=chats.jsonl"),
          std::string("data.chat.format=chatml"), std::string("steps=10"),
          std::string("batch={global: 2, micro: 1, sequence: 16}"), "precision=" + precision,
          "checkpoint.directory=" + run}) {
      words.insert(words.end(), {"--set", set});
    }
    if (!targets.empty()) {
      words.insert(words.end(), {"--set", "adapter.lora.targets=" + targets});
    }
    return words;
  }

  // The loss of all answers of the chats.
  static double Loss(const std::string& checkpoint) {
    const std::string output =
        Run({"evaluate", checkpoint, "--chats", "chats.jsonl", "--format", "chatml"});
    const auto json = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? json.at("chats").at("loss").get<double>() : NAN;
  }
  static std::string Answer(const std::string& checkpoint) {
    return Run({"generate", checkpoint, "--chat", "a", "--format", "chatml", "--tokens", "8",
                "--temperature", "0"});
  }

  static Service* service_;
};

Service* TunedFamily::service_ = nullptr;

TEST_P(TunedFamily, TrainsAnswersAndComesBackFromItsExports) {
  std::string targets;
  if (const auto named = NamedByPeft().find(GetParam()); named != NamedByPeft().end()) {
    targets = named->second;
    const Finished submitted = service_->Trainyard(Submit("runs/unnamed", "F32", ""));
    EXPECT_THAT(submitted.errors, HasSubstr("PEFT has names for adapter.lora.targets: " + targets));
  }
  Run({"import", GetParam(), "--to", GetParam() + "-base"});
  const double untrained = Loss(GetParam() + "-base");
  struct Case {
    const char* precision;
    double merged, beside;  // How far losses may differ, relatively.
  };
  // A run in BF16 has rounded weights of the base, also in what it merges. Its adapter is imported
  // beside the weights as they were.
  for (const Case& wanted : {Case{"F64", 1e-14, 1e-14}, Case{"BF16", 1e-6, 2e-2}}) {
    SCOPED_TRACE(wanted.precision);
    const std::string name = absl::StrCat(GetParam(), "-", wanted.precision);
    const std::string run = "runs/" + name;
    std::vector<std::string> submit = Submit(run, wanted.precision, targets);
    submit.insert(submit.end(), {"--watch", "--quiet"});
    Run(submit);
    Run({"export", run, "--to", name + "-adapter"});
    Run({"export", run, "--to", name + "-merged", "--merge"});
    Run({"import", name + "-adapter", "--base", GetParam(), "--to", name + "-back"});
    Run({"import", name + "-merged", "--to", name + "-whole"});
    const double loss = Loss(run);
    EXPECT_GT(std::abs(loss - untrained), 1e-3);
    EXPECT_NEAR(Loss(name + "-whole"), loss, wanted.merged * loss);
    EXPECT_NEAR(Loss(name + "-back"), loss, wanted.beside * loss);
    const std::string answer = Answer(run);
    EXPECT_EQ(Answer(name + "-whole"), answer);
    if (wanted.beside < 1e-2) {
      EXPECT_EQ(Answer(name + "-back"), answer);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TunedFamily, ::testing::ValuesIn(LanguageFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
