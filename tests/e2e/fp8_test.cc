// Proves, through the service, that a job in 8 bits starts from weights that were trained in bf16,
// on two tensor ranks of which one is killed in the middle, to the bit as without the kill; that
// what it exports is what it generates with, without histories; that the same holds for an adapter
// on a base in 8 bits; and that what the precision cannot do is refused at submit.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "gmock/gmock.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TestJob Delayed(const std::string& name, const std::string& directory, const std::string& more) {
  return {.name = name,
          .steps = 16,
          .devices = 2,
          .checkpoint_every = 5,
          .directory = directory,
          .precision = "FP8_DELAYED",
          .data = "text: {path: corpus.txt}",
          .more = absl::StrCat("parallelism: {tensor: 2}\ninit_from: runs/base\n", more)};
}

TEST(Fp8, AJobStartsFromBf16SurvivesAKillAndIsExported) {
  Service service(
      {.devices_per_worker = 2, .worker_flags = {"--trainer", FaultyTrainer("kill:8")}});
  const auto corpus =
      ReadFile(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/training/corpus.txt");
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  service.Write("corpus.txt", *corpus);
  const std::string base = service.Submit({.name = "undisturbed",
                                           .steps = 10,
                                           .checkpoint_every = 10,
                                           .directory = "runs/base",
                                           .precision = "BF16",
                                           .data = "text: {path: corpus.txt}"});
  ASSERT_EQ(service.WaitForEnd(base), "SUCCEEDED");
  const std::string calm = service.Submit(Delayed("undisturbed", "runs/calm", ""));
  ASSERT_EQ(service.WaitForEnd(calm), "SUCCEEDED");
  const std::string killed = service.Submit(Delayed("killed", "runs/killed", ""));
  ASSERT_EQ(service.WaitForEnd(killed), "SUCCEEDED");
  EXPECT_EQ(service.Job(killed).at("restarts"), 1);
  EXPECT_EQ(service.Digest("runs/killed"), service.Digest("runs/calm"));
  const std::vector<nlohmann::json> steps = service.Steps(killed);
  EXPECT_LT(steps.back().at("loss"), steps.front().at("loss"));
  EXPECT_FALSE(steps.back().contains("mfu")) << "a CPU has no peak in 8 bits";

  const auto generated = [&](const std::string& checkpoint) {
    const Finished text = service.Trainyard(
        {"generate", checkpoint, "--prompt", "In the", "--tokens", "40", "--temperature", "0"});
    EXPECT_EQ(text.exit_code, 0) << text;
    return text.output;
  };
  const auto tensors = [&](const std::string& file) {
    return ReadFile(absl::StrCat(service.directory(), "/", file)).value();
  };
  const Finished exported = service.Trainyard({"export", "runs/killed", "--to", "whole"});
  EXPECT_EQ(exported.exit_code, 0) << exported;
  EXPECT_THAT(tensors("whole/model.safetensors"), Not(HasSubstr(".amax.")));
  EXPECT_THAT(service.Trainyard({"checkpoint", "inspect", "runs/killed"}).output,
              HasSubstr("model.layers.0.mlp.down_proj.weight.amax.input"));
  EXPECT_EQ(service.Trainyard({"import", "whole", "--to", "again"}).exit_code, 0);
  EXPECT_EQ(generated("runs/killed"), generated("again"));

  TestJob imported = {.name = "undisturbed",
                      .steps = 3,
                      .precision = "FP8_DELAYED",
                      .model = "import: whole",
                      .data = "text: {path: corpus.txt}"};
  const std::string from_directory = service.Submit(imported);
  ASSERT_EQ(service.WaitForEnd(from_directory), "SUCCEEDED");
  EXPECT_LT(service.Steps(from_directory).front().at("loss"), steps.front().at("loss"));

  TestJob adapted = Delayed("undisturbed", "runs/adapted",
                            "adapter: {lora: {rank: 4, modules_to_save: ['*.norm']}}");
  ASSERT_EQ(service.WaitForEnd(service.Submit(adapted)), "SUCCEEDED");
  const Finished adapter = service.Trainyard({"export", "runs/adapted", "--to", "for_peft"});
  EXPECT_EQ(adapter.exit_code, 0) << adapter;
  EXPECT_THAT(tensors("for_peft/adapter_model.safetensors"), Not(HasSubstr(".amax.")));

  TestJob divided = Delayed("divided", "runs/divided", "");
  divided.precision = "FP8_BLOCKWISE";
  service.Write("divided.yaml", divided.Text());
  const Finished refused = service.Trainyard({"submit", "divided.yaml"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("parallelism.tensor: wanted a degree that leaves each "
                                        "rank a multiple of 128"));
}

}  // namespace
}  // namespace trainyard::testing
