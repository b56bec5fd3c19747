// Proves that a published recipe runs on the devices at hand: what does not fit shrinks, each
// change is noted, and in the end there is the line of the published tables.

#include <gmock/gmock.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Recipe(const std::string& name) {
  return absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/published/", name, ".yaml");
}

// The pages' 64 GPUs are tensor 4 x pipeline 4 (virtual 5) x context 2 x data 2.
TEST(PublishedRecipe, ScalesToTwoDevicesAndPrintsThePagesLine) {
  Service service({.workers = 1, .devices_per_worker = 2});
  const std::vector<std::string> words = {
      "submit",
      Recipe("nemo20-llama3-70b-fp8-64"),
      "--scale-to",
      "2",
      "--set",
      "model.overrides={layers: 18, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, vocab: 256}",
      "--set",
      "batch={global: 8, micro: 1, sequence: 64}",
      "--set",
      "labels.page=dgxc-nemotron4",
      "--set",
      "steps=4"};
  const Finished run = service.Trainyard(words);
  EXPECT_EQ(run.exit_code, 0) << run;
  for (const char* change :
       {"devices 64 -> 2: ", "parallelism.tensor 4 -> 2: ", "parallelism.pipeline 4 -> 1: ",
        "parallelism.context 2 -> 1: ", "parallelism.virtual_pipeline 5 -> 1: ",
        "batch.global 8 -> 4: ", "model.overrides.layers 18 -> 3: "}) {
    EXPECT_THAT(run.errors, HasSubstr(absl::StrCat("scaled: ", change)));
  }
  EXPECT_THAT(run.errors, Not(HasSubstr("expert")));
  EXPECT_THAT(run.errors, Not(HasSubstr("precision")));
  EXPECT_THAT(run.output, AllOf(ContainsRegex("GBS +MBS +SEQ +TP +PP +CP +VP +EP +GA +FSDP"),
                                ContainsRegex("\n +4 +1 +64 +2 +1 +1 +1 +1 +4 +- +[0-9]")));
  EXPECT_THAT(run.errors,
              AllOf(HasSubstr("by the convention 'dgxc-nemotron4'"),
                    HasSubstr("the publisher's slip: ffn is 4 hidden; the model has 64\n")));

  // Two terabytes a device, of which a layer is two gigabytes.
  const Finished deep = service.Trainyard(
      {"submit", Recipe("nemo20-llama3-8b-fp8-8"), "--scale-to", "2", "--validate-only", "--set",
       "model.overrides={layers: 1024, vocab: 256}", "--set", "batch.sequence=64"});
  EXPECT_EQ(deep.exit_code, 0) << deep;
  EXPECT_THAT(deep.errors, AllOf(HasSubstr("devices 8 -> 2: "),
                                 ContainsRegex("model.overrides.layers 1024 -> [0-9]+: to fit")));

  // A layer is 600 gigabytes of a device.
  const Finished wide = service.Trainyard(
      {"submit", Recipe("nemo20-llama3-8b-fp8-8"), "--scale-to", "2", "--validate-only", "--set",
       "model.overrides={hidden: 65536, ffn: 262144, heads: 512, kv_heads: 8}"});
  EXPECT_EQ(wide.exit_code, 1) << wide;
  EXPECT_THAT(wide.errors, ContainsRegex("--scale-to: with layers = 1, memory: wanted .*"
                                         "less is wanted with"));

  // One device has no axes that could grow.
  const Finished alone = service.Trainyard(
      {"submit", Recipe("nemo20-llama3-8b-fp8-8"), "--scale-to", "1", "--validate-only", "--set",
       "model.overrides={hidden: 65536, ffn: 262144, heads: 512, kv_heads: 8}"});
  EXPECT_EQ(alone.exit_code, 1) << alone;
  EXPECT_THAT(alone.errors, AllOf(HasSubstr("devices 8 -> 1: --scale-to 1\n"),
                                  ContainsRegex("less is wanted with .*--scale-to more than 1"),
                                  Not(ContainsRegex("less is wanted with .*parallelism"))));

  const Finished more = service.Trainyard(
      {"submit", Recipe("nemo20-llama3-8b-fp8-8"), "--scale-to", "4", "--validate-only", "--set",
       "model.overrides={layers: 2, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, vocab: 256}",
       "--set", "batch.sequence=64", "--set", "labels.page=nemo"});
  EXPECT_EQ(more.exit_code, 0) << more;
  EXPECT_THAT(more.errors, AllOf(HasSubstr("needs 4 devices, and the cluster has 2: the job waits"),
                                 HasSubstr("labels.page: no FLOPs convention \"nemo\""),
                                 HasSubstr("will be by the convention 'exact'")));
  for (const Finished* fits : {&run, &deep}) {
    EXPECT_THAT(fits->errors,
                AllOf(Not(HasSubstr("the cluster has")), Not(HasSubstr("labels.page"))));
  }

  const Finished wrong = service.Trainyard(
      {"submit", Recipe("nemo20-llama3-8b-fp8-8"), "--scale-to", "2", "--set", "batch.micro=3"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong;
  EXPECT_THAT(wrong.errors, HasSubstr("--set batch.micro=3"));
}

}  // namespace
}  // namespace trainyard::testing
