// Proves what `import` and `export` say, and that a refusal is exit code 1 with the key or the
// tensor, and leaves nothing behind. train_hf_test proves what they write.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/command_line.h"
#include "cli/spec.h"
#include "cli/verbs/verbs.h"
#include "common/files.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HuggingFace : public ::testing::Test {
 protected:
  HuggingFace() { std::filesystem::create_directories(scratch_); }
  ~HuggingFace() override { std::filesystem::remove_all(scratch_); }

  int Trainyard(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    Output output(out_, err_, Terminal());
    return RunCommandLine(Verbs(), words, {}, output);
  }

  const std::string model_ =
      absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/tests/golden/hf/llama");
  const std::string scratch_ =
      absl::StrCat(::testing::TempDir(), "/hf-",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string imported_ = scratch_ + "/imported", exported_ = scratch_ + "/exported";
  std::ostringstream out_, err_;
};

TEST_F(HuggingFace, GoesInAndOut) {
  ASSERT_EQ(Trainyard({"import", model_, "--to", imported_}), 0) << err_.str();
  EXPECT_EQ(out_.str(),
            absl::StrCat("imported  ", imported_, "  (llama, 3348 parameters, 26.7 KiB)\n"));
  EXPECT_EQ(
      err_.str(),
      absl::StrCat("a job begins with these weights if its spec has init_from: ", imported_, "\n"));
  ASSERT_EQ(Trainyard({"import", model_, "--to", scratch_ + "/json", "-o", "json"}), 0);
  const nlohmann::json answer = nlohmann::json::parse(out_.str());
  EXPECT_EQ(answer["model"]["family"], "llama");
  EXPECT_EQ(answer["model"]["layers"], 2);
  EXPECT_EQ(answer["parameters"], 3348);
  EXPECT_EQ(Trainyard({"checkpoint", "verify", imported_}), 0) << err_.str();
  EXPECT_EQ(Trainyard({"checkpoint", "inspect", imported_, "-o", "json"}), 0) << err_.str();
  const nlohmann::json inspected = nlohmann::json::parse(out_.str());
  EXPECT_EQ(inspected["family"], "llama");
  EXPECT_EQ(inspected["step"], 0);
  EXPECT_EQ(inspected["tensors"].size(), 21u);

  ASSERT_EQ(Trainyard({"export", imported_, "--to", exported_, "-o", "json"}), 0) << err_.str();
  const nlohmann::json exported = nlohmann::json::parse(out_.str());
  EXPECT_EQ(exported["dtype"], "F64");
  EXPECT_EQ(exported["files"], nlohmann::json::array({"model.safetensors"}));
  EXPECT_EQ(exported["changed_keys"], nlohmann::json::array());
  EXPECT_THAT(*ListDirectory(exported_), ElementsAre("config.json", "model.safetensors"));

  // Without what the import kept, the dtype is the checkpoint's, and nothing can be carried.
  std::filesystem::remove_all(imported_ + "/hugging_face");
  ASSERT_EQ(Trainyard({"export", imported_, "--to", scratch_ + "/again", "--dtype", "BF16"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("(1 file, BF16, 6.54 KiB)"));
  EXPECT_THAT(err_.str(), StartsWith("no tokenizer is known"));
}

TEST_F(HuggingFace, ImportWithoutATargetLooks) {
  ASSERT_EQ(Trainyard({"import", model_}), 0) << err_.str();
  EXPECT_EQ(out_.str(), absl::StrCat("can be imported  ", model_, "  (llama, 3348 parameters)\n"));
  ASSERT_EQ(Trainyard({"import", model_, "-o", "json"}), 0) << err_.str();
  const nlohmann::json answer = nlohmann::json::parse(out_.str());
  EXPECT_EQ(answer["model"]["family"], "llama");
  EXPECT_FALSE(answer.contains("path"));
}

// The adapter that an import of PEFT's directory prints is what a spec takes.
TEST_F(HuggingFace, ImportsAnAdapterBesideItsBase) {
  const std::string golden = std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/";
  const std::string adapter = golden + "peft/llama_dora", run = scratch_ + "/run";
  ASSERT_EQ(Trainyard({"import", adapter, "--base", model_}), 0) << err_.str();
  EXPECT_EQ(out_.str(), absl::StrCat("can be imported  ", adapter,
                                     "  (adapter of 500 parameters on ", model_, ", llama)\n"));
  ASSERT_EQ(Trainyard({"import", adapter, "--base", model_, "--to", run}), 0) << err_.str();
  EXPECT_THAT(err_.str(),
              HasSubstr(absl::StrCat("init_from: ", run,
                                     " and adapter: {\"lora\":{\"rank\":2,\"alpha\":8.0,",
                                     "\"dora\":true,\"targets\":[\"*.down_proj\",\"*.q_proj\"],",
                                     "\"modules_to_save\":[\"lm_head\"]}}")));
  ASSERT_EQ(Trainyard({"checkpoint", "verify", run}), 0) << err_.str();
  ASSERT_EQ(Trainyard({"import", adapter, "--base", model_, "-o", "json"}), 0) << err_.str();
  const nlohmann::json answer = nlohmann::json::parse(out_.str());
  EXPECT_EQ(answer["trained_parameters"], 500);
  EXPECT_EQ(answer["parameters"], 3348 + 500 - 13 * 12) << "the head is there once";
  EXPECT_EQ(answer["model"]["family"], "llama");
  EXPECT_EQ(answer["adapter"]["lora"]["dora"], true);

  // The export names the base as PEFT's directory did.
  ASSERT_EQ(Trainyard({"export", run, "--to", scratch_ + "/back"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("the adapter's base is hf/llama"));
  EXPECT_THAT(*ReadFile(scratch_ + "/back/adapter_config.json"),
              HasSubstr("\"base_model_name_or_path\": \"hf/llama\""));

  EXPECT_EQ(Trainyard({"import", adapter}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--base: wanted the directory of the model that"));
  EXPECT_EQ(Trainyard({"import", model_, "--base", model_}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("adapter_config.json"));
}

// The spec after `submit` has read the directory.
absl::StatusOr<v1::JobSpec> Resolved(const std::string& model) {
  auto document =
      SpecDocument::Parse("s.yaml", absl::StrCat("name: a\nmodel: ", model, "\nsteps: 1\n"), {});
  if (!document.ok()) return document.status();
  const absl::Status resolved = document->ResolveImport();
  if (!resolved.ok()) return document->Explain(resolved);
  return document->ToProto();
}

TEST_F(HuggingFace, ASpecThatImportsGetsTheArchitecture) {
  const auto spec = Resolved(absl::StrCat("{import: ", model_, ", overrides: {max_seq: 32}}"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model().import(), model_);
  EXPECT_EQ(spec->model().architecture().family(), "llama");
  EXPECT_EQ(spec->model().architecture().vocab(), 13);
  EXPECT_EQ(spec->model().architecture().max_seq(), 32);
  EXPECT_FALSE(spec->model().has_overrides());

  // A spec that says both is sent as it is.
  const auto both = Resolved("{import: nowhere, architecture: {family: llama, layers: 7}}");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->model().architecture().layers(), 7);
}

// What the user has ignored is written into the job.
TEST_F(HuggingFace, IgnoresWhatTheUserNames) {
  const std::string odd = scratch_ + "/odd";
  std::filesystem::copy(model_, odd);
  nlohmann::json config = nlohmann::json::parse(*ReadFile(odd + "/config.json"));
  config["fancy"] = 3;
  std::ofstream(odd + "/config.json") << config;
  EXPECT_EQ(Trainyard({"import", odd}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("fancy: wanted no such key"));
  EXPECT_THAT(err_.str(), HasSubstr("(--ignore fancy, or model.ignore_keys"));
  EXPECT_EQ(Trainyard({"import", odd, "--ignore", "fancy"}), 0) << err_.str();
  EXPECT_EQ(Trainyard({"import", odd, "--ignore", "fancy", "--ignore", "vocab_size"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("vocab_size: wanted a key that this program does not read"));
  EXPECT_FALSE(Resolved(absl::StrCat("{import: ", odd, "}")).ok());
  const auto spec = Resolved(absl::StrCat("{import: ", odd, ", ignore_keys: [fancy]}"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->model().ignore_keys(), ElementsAre("fancy"));
}

// Bug it must catch: an illegal value is named by a field that the user's file does not have.
TEST_F(HuggingFace, AnIllegalValueIsNamedByItsKey) {
  const std::string bad = scratch_ + "/bad";
  std::filesystem::copy(model_, bad);
  nlohmann::json config = nlohmann::json::parse(*ReadFile(bad + "/config.json"));
  config["num_attention_heads"] = 0;
  std::ofstream(bad + "/config.json") << config;
  EXPECT_EQ(Trainyard({"import", bad}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("error: num_attention_heads: wanted 1 to"));
  EXPECT_THAT(err_.str(), HasSubstr("; heads in a job spec"));
  const auto spec = Resolved(absl::StrCat("{import: ", bad, "}"));
  EXPECT_THAT(std::string(spec.status().message()),
              AllOf(StartsWith("s.yaml:2: model.import: "), HasSubstr("\nnum_attention_heads: ")));
}

TEST_F(HuggingFace, SaysHowExpertsAreBalanced) {
  const std::string golden = absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/tests/golden/hf/");
  EXPECT_EQ(Trainyard({"import", golden + "mixtral"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("the experts' load is not balanced, as `transformers` does not "
                                    "balance it; model.overrides: {moe: {aux_loss: 1e-3}} adds a "
                                    "loss\n"));
  EXPECT_EQ(Trainyard({"import", golden + "mixtral_balanced"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("balanced by a loss (aux_loss 0.2, scope MODEL, the same as "
                                    "router_aux_loss_coef 0.3)"));
  EXPECT_EQ(Trainyard({"import", golden + "deepseek_v3"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("is not balanced, as `transformers` does not balance it"));
  EXPECT_THAT(err_.str(), HasSubstr("{moe: {bias_update_rate: 1e-3}} moves the bias"));
  EXPECT_EQ(Trainyard({"import", model_}), 0);
  EXPECT_THAT(err_.str(), Not(HasSubstr("experts")));
  // Also where no controller answers.
  std::ofstream(scratch_ + "/s.yaml")
      << "{name: a, model: {import: " << golden << "mixtral}, steps: 1}";
  EXPECT_EQ(Trainyard({"submit", scratch_ + "/s.yaml", "--controller", "127.0.0.1:1"}), 4);
  EXPECT_THAT(err_.str(), HasSubstr("the experts' load is not balanced"));
}

// Bug it must catch: a job trains for a day what `export` then refuses.
TEST_F(HuggingFace, SaysBeforeTrainingWhatPeftCannotLoad) {
  const std::string golden = absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/tests/golden/hf/");
  const auto notes = [&](const std::string& model, const std::string& adapter, int sequence = 8) {
    std::ofstream(scratch_ + "/s.yaml")
        << "{name: a, model: {import: " << golden << model << "}, adapter: {" << adapter
        << "}, batch: {global: 1, micro: 1, sequence: " << sequence
        << "}, data: {synthetic: {}}, steps: 1, optimizer: {adamw: {learning_rate: 1e-3}}}";
    EXPECT_NE(Trainyard({"submit", scratch_ + "/s.yaml", "--controller", "127.0.0.1:1"}), 0);
    return err_.str();
  };
  EXPECT_THAT(notes("deepseek_v3", "lora: {}"),
              HasSubstr("cannot be exported for PEFT: model.layers.0.mlp."));
  EXPECT_THAT(notes("deepseek_v3", "lora: {targets: ['*.self_attn.*']}"), Not(HasSubstr("PEFT")));
  EXPECT_THAT(notes("llama", "lora: {}"), Not(HasSubstr("PEFT")));
  // What is refused is not recorded.
  EXPECT_THAT(notes("deepseek_v3", "lora: {}", 1 << 20), Not(HasSubstr("PEFT")));
  EXPECT_THAT(notes("deepseek_v3", "lora: {rank: -1}"), Not(HasSubstr("PEFT")));
  EXPECT_THAT(notes("deepseek_v3", ""), Not(HasSubstr("PEFT")));
}

// The family is known only once the directory is read.
TEST_F(HuggingFace, OverridesOfAnImportAreFieldsOfItsFamily) {
  const auto refused = [](const std::string& directory, const std::string& overrides) {
    return std::string(
        Resolved(absl::StrCat("{import: ", directory, ", overrides: ", overrides, "}"))
            .status()
            .message());
  };
  EXPECT_THAT(refused(model_, "{window: 4}"),
              HasSubstr("model.overrides.window: wanted none, since family llama has no window, "
                        "found 4"));
  EXPECT_THAT(refused(model_, "{moe: {experts: 8}}"), HasSubstr("has no moe.experts, found 8"));
  const std::string gpt2 = absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/tests/golden/hf/gpt3");
  EXPECT_THAT(refused(gpt2, "{max_seq: 15}"), HasSubstr("max_seq is 16, wanted 15"));
  // What cannot be read is said, and nothing else.
  const auto lines = [&](const std::string& model) {
    const std::string text(Resolved(model).status().message());
    return std::count(text.begin(), text.end(), '\n') + 1;
  };
  EXPECT_EQ(lines(absl::StrCat("{import: ", model_, ", overrides: {layers: many}}")), 1);
  EXPECT_THAT(
      std::string(
          Resolved(absl::StrCat("{import: ", model_, "}\nprecision: F16")).status().message()),
      AllOf(HasSubstr("precision: "), Not(HasSubstr("model.import"))));
}

TEST_F(HuggingFace, ASpecThatImportsNothingIsRefusedAtItsLine) {
  EXPECT_THAT(std::string(Resolved("{import: nowhere}").status().message()),
              StartsWith("s.yaml:2: model.import: "));
  EXPECT_EQ(Resolved("{import: ''}").status().message(),
            "s.yaml:2: model.import: wanted the path of a Hugging Face directory, found an empty "
            "path");
  EXPECT_THAT(std::string(Resolved(absl::StrCat("{import: ", model_, ", overrides: {heads: 0}}"))
                              .status()
                              .message()),
              HasSubstr("s.yaml:2: model.overrides.heads: wanted 1 to"));
}

// Ranks would find it only after the job has its devices.
TEST_F(HuggingFace, ASpecThatImportsAnotherModelIsRefused) {
  auto document = SpecDocument::Parse(
      "s.yaml", absl::StrCat("model: {import: ", model_, ", overrides: {layers: 1}}"), {});
  const absl::Status resolved = document->ResolveImport();
  EXPECT_THAT(std::string(document->Explain(resolved).message()),
              HasSubstr("weights are of another model: layers is 2, wanted 1"));
}

TEST_F(HuggingFace, WrongWordsAreUsageErrors) {
  EXPECT_EQ(Trainyard({"export", imported_}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--to: wanted the path of the new directory, found none"));
  EXPECT_EQ(Trainyard({"export", imported_, "--to", exported_, "--dtype", "bf16"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--dtype: wanted BF16, F16, F32 or F64, found 'bf16'"));
}

// Bug it must catch: a quantised export, which nobody can load, has the numbers of another dtype.
TEST_F(HuggingFace, AQuantisedExportIsRefusedAndLeavesNothing) {
  ASSERT_EQ(Trainyard({"import", model_, "--to", imported_}), 0) << err_.str();
  for (const char* dtype : {"NF4", "INT4", "INT8", "F8_E4M3", "I32", "U8"}) {
    for (const bool merge : {false, true}) {
      std::vector<std::string> words = {"export", imported_, "--to", exported_, "--dtype", dtype};
      if (merge) words.emplace_back("--merge");
      EXPECT_EQ(Trainyard(words), 2) << dtype;
      EXPECT_THAT(err_.str(), HasSubstr(absl::StrCat(
                                  "--dtype: wanted BF16, F16, F32 or F64, found '", dtype, "'")));
      EXPECT_FALSE(Exists(exported_)) << dtype;
    }
  }
}

// What is read is wrong, too, but takes long to read if it is large.
TEST_F(HuggingFace, ATargetWithoutItsDirectoryIsRefusedFirst) {
  const std::string to = scratch_ + "/a/b/";
  for (const char* verb : {"import", "export"}) {
    EXPECT_EQ(Trainyard({verb, scratch_ + "/nowhere", "--to", to}), 1);
    EXPECT_THAT(err_.str(),
                StartsWith(absl::StrCat("error: ", to,
                                        ": wanted a path in a directory, but there is no ")));
    EXPECT_THAT(err_.str(), HasSubstr("/a; mkdir -p /"));
    EXPECT_EQ(Trainyard({verb, scratch_ + "/nowhere", "--to", model_}), 1);
    EXPECT_THAT(err_.str(), HasSubstr("wanted a path at which there is nothing"));
  }
  EXPECT_FALSE(Exists(scratch_ + "/a"));
}

TEST_F(HuggingFace, RefusalsLeaveNothingBehind) {
  const std::string bad = scratch_ + "/bad";
  std::filesystem::copy(model_, bad);
  nlohmann::json config = nlohmann::json::parse(*ReadFile(bad + "/config.json"));
  config["attention_bias"] = true;
  config["new_option"] = 3;
  std::ofstream(bad + "/config.json") << config;
  EXPECT_EQ(Trainyard({"import", bad, "--to", imported_}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("error: attention_bias: wanted false, as this program has no "
                                    "other, found true\nerror: new_option: wanted no such key"));
  EXPECT_EQ(Trainyard({"import", bad + "/nowhere", "--to", imported_}), 1);
  EXPECT_EQ(Trainyard({"export", bad, "--to", exported_}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("no complete checkpoint in"));
  EXPECT_THAT(*ListDirectory(scratch_), ElementsAre("bad"));
}

}  // namespace
}  // namespace trainyard::cli
