// Proves, through the service, that a low-rank adapter is trained on another job's weights, by two
// tensor ranks of which one is killed in the middle, to the bit as without the kill; that the
// result writes what its export as one model writes, and not what the base writes; that its export
// for PEFT is imported as the same, and trained further; and that a spec which would train nothing
// is refused at submit.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "gmock/gmock.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

TestJob Tuned(const std::string& name, const std::string& adapter, const std::string& more) {
  return {
      .name = name,
      .steps = 60,
      .devices = 2,
      .checkpoint_every = 25,
      .directory = "runs/" + name,
      .data = "text: {path: corpus.txt}",
      .more = absl::StrCat("parallelism: {tensor: 2}\nadapter: {lora: {", adapter, "}}\n", more)};
}

// The members of an object, without its braces.
std::string Within(const std::string& object) { return object.substr(1, object.size() - 2); }

TEST(FineTuning, AnAdapterSurvivesAKillAndIsExported) {
  Service service(
      {.devices_per_worker = 2, .worker_flags = {"--trainer", FaultyTrainer("kill:40")}});
  const auto corpus =
      ReadFile(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/training/corpus.txt");
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  service.Write("corpus.txt", *corpus);
  const std::string base = service.Submit({.name = "undisturbed",
                                           .checkpoint_every = 20,
                                           .directory = "runs/base",
                                           .data = "text: {path: corpus.txt}"});
  ASSERT_EQ(service.WaitForEnd(base), "SUCCEEDED");

  const std::string adapter = "rank: 4, alpha: 16, modules_to_save: ['*.norm']";
  TestJob calm = Tuned("calm", adapter, "init_from: runs/base");
  calm.name = "undisturbed";
  ASSERT_EQ(service.WaitForEnd(service.Submit(calm)), "SUCCEEDED");
  const std::string killed = service.Submit(Tuned("killed", adapter, "init_from: runs/base"));
  ASSERT_EQ(service.WaitForEnd(killed), "SUCCEEDED");
  EXPECT_EQ(service.Job(killed).at("restarts"), 1);
  EXPECT_EQ(service.Digest("runs/killed"), service.Digest("runs/calm"));
  const std::vector<nlohmann::json> steps = service.Steps(killed);
  EXPECT_LT(steps.back().at("loss"), steps.front().at("loss"));
  // The adapter has a few thousand numbers beside the 30,000 of the base, which lie there once.
  EXPECT_TRUE(std::filesystem::exists(service.directory() + "/runs/killed/epoch-1/base"));
  const std::string inspected = service.Trainyard({"checkpoint", "inspect", "runs/killed"}).output;
  EXPECT_THAT(inspected, HasSubstr("model.layers.0.self_attn.q_proj.lora_A.weight"));

  const Finished exported = service.Trainyard({"export", "runs/killed", "--to", "for_peft"});
  EXPECT_EQ(exported.exit_code, 0) << exported;
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(service.directory() + "/for_peft/" + file)) << file;
  }
  const Finished merged = service.Trainyard({"export", "runs/killed", "--to", "whole", "--merge"});
  EXPECT_EQ(merged.exit_code, 0) << merged;
  const Finished imported = service.Trainyard({"import", "whole", "--to", "again"});
  EXPECT_EQ(imported.exit_code, 0) << imported;
  const auto written = [&](const std::string& checkpoint) {
    const Finished text = service.Trainyard(
        {"generate", checkpoint, "--prompt", "In the", "--tokens", "40", "--temperature", "0"});
    EXPECT_EQ(text.exit_code, 0) << text;
    return text.output;
  };
  EXPECT_EQ(written("runs/killed"), written("again"));
  EXPECT_NE(written("runs/killed"), written("runs/base"));
  // PEFT's directory comes back beside the exported base, writes the same, and is trained further.
  EXPECT_EQ(service.Trainyard({"export", "runs/base", "--to", "whole-base"}).exit_code, 0);
  const Finished back = service.Trainyard(
      {"import", "for_peft", "--base", "whole-base", "--to", "runs/back", "-o", "json"});
  EXPECT_EQ(back.exit_code, 0) << back;
  EXPECT_EQ(written("runs/killed"), written("runs/back"));
  const std::string further = service.Submit(
      Tuned("further", Within(nlohmann::json::parse(back.output).at("adapter").at("lora").dump()),
            "init_from: runs/back"));
  ASSERT_EQ(service.WaitForEnd(further), "SUCCEEDED");
  EXPECT_LT(service.Steps(further).front().at("loss"), steps.front().at("loss"));

  const Finished refused = service.Trainyard({"export", "runs/base", "--to", "none", "--merge"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("--merge: wanted a checkpoint with an adapter"));

  TestJob other = Tuned("other", "rank: 8", "init_from: runs/killed");
  const std::string lost = service.Submit(other);
  EXPECT_EQ(service.WaitForEnd(lost), "FAILED");
  EXPECT_THAT(service.Job(lost).dump(), HasSubstr("found an adapter: rank 4, alpha 16"));
}

TEST(FineTuning, ASpecThatTrainsNothingIsRefusedAtSubmit) {
  Service service({.workers = 1});
  const auto refusal = [&](const TestJob& job) {
    const std::string spec = service.Write("spec.yaml", job.Text());
    const Finished submitted = service.Trainyard({"submit", spec});
    EXPECT_NE(submitted.exit_code, 0);
    return submitted.errors;
  };
  EXPECT_THAT(refusal(Tuned("a", "targets: [q_proj]", "init_from: runs/base")),
              HasSubstr("adapter.lora.targets[0]"));
  EXPECT_THAT(refusal(Tuned("a", "", "")), HasSubstr("model.import or init_from"));
}

}  // namespace
}  // namespace trainyard::testing
