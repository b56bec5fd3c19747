// Proves that this release reads the files and socket lines of the last one, which that release's
// own programs have written (last_release/, by record.py), and that keys which a later release adds
// to them are ignored.

#include "common/files.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/sha256.h"
#include "controller/jobs/job_codec.h"
#include "tests/testing/parse_trainer.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/history.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/save.h"
#include "worker/channel/messages.h"
#include "worker/daemon/rank_directory.h"

namespace trainyard {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string Recorded(const std::string& name) {
  const char* source = std::getenv("TRAINYARD_SOURCE");
  const std::string path = absl::StrCat(source, "/tests/upgrade/last_release/", name);
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status() << "; 'scripts/upgrade.sh --record' writes it";
  return text.value_or("");
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// With a key that no release has, in the object and in those directly below it.
std::string WithNextKey(const std::string& text) {
  ordered_json object = ordered_json::parse(text);
  for (auto& [name, value] : object.items()) {
    if (value.is_object()) value["next"] = {{"a", 1}};
  }
  object["next"] = {{"a", 1}};
  return object.dump();
}

// A directory with the files of a test: as they were recorded, or with keys of a later release.
class Files : public ::testing::TestWithParam<bool> {
 protected:
  Files() { std::filesystem::remove_all(directory_); }

  static std::string Text(const std::string& name) {
    return GetParam() ? WithNextKey(Recorded(name)) : Recorded(name);
  }
  static std::vector<std::string> LinesOf(const std::string& name) {
    std::vector<std::string> lines = Lines(Recorded(name));
    if (GetParam()) std::transform(lines.begin(), lines.end(), lines.begin(), WithNextKey);
    return lines;
  }
  std::string Put(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(directory_) / path;
    std::filesystem::create_directories(whole.parent_path());
    EXPECT_TRUE(WriteFileAtomic(whole.string(), text).ok());
    return whole.string();
  }

  const std::string directory_ = ::testing::TempDir() + "/upgrade_files";
};

INSTANTIATE_TEST_SUITE_P(, Files, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "WithMore" : "AsTheyAre"; });

TEST_P(Files, ASupervisorStartsWhatADaemonOfTheLastReleaseOrdered) {
  const auto launch = ReadLaunch(Put("launch.json", Text("launch.json")));
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_THAT(launch->trainer, HasSubstr("trainyard-trainer"));
  EXPECT_EQ(launch->working_directory, "/service");
  EXPECT_THAT(launch->environment, Not(SizeIs(0)));
  EXPECT_EQ(launch->log_files, 4u);
}

TEST_P(Files, ADaemonTakesOverARankOfTheLastRelease) {
  const auto supervisor = ReadSupervisor(Put("supervisor.json", Text("supervisor.json")));
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  EXPECT_GT(supervisor->start_time, 0u);
  for (const char* name : {"exit_report.json", "trainer_exit.json"}) {
    const auto exit = ReadExitReport(Put(name, Text(name)));
    ASSERT_TRUE(exit.ok()) << exit.status();
    EXPECT_EQ(exit->cause, ExitCause::kCompleted) << name;
  }
}

TEST_P(Files, ADaemonUnderstandsEveryLineOfATrainerOfTheLastRelease) {
  std::map<size_t, int> types;
  for (const char* name : {"steps.1", "checkpoints.1", "rendezvous.1", "ready", "socket.jsonl"}) {
    const std::vector<std::string> lines = LinesOf(name);
    EXPECT_THAT(lines, Not(SizeIs(0))) << name;
    for (const std::string& line : lines) {
      const auto envelope = channel::Decode(line);
      ASSERT_TRUE(envelope.ok()) << name << ": " << envelope.status() << "\n" << line;
      EXPECT_FALSE(std::holds_alternative<channel::Unknown>(envelope->message)) << line;
      ++types[envelope->message.index()];
      if (const auto* step = std::get_if<channel::Step>(&envelope->message)) {
        EXPECT_GT(step->loss, 0);
        EXPECT_GT(step->tokens, 0u);
      }
    }
  }
  EXPECT_THAT(types, SizeIs(6)) << "hello, ready, step, checkpoint, set, progress";
}

// Catches a field that is asked of every stored job, and that the last release did not write: after
// an upgrade, all jobs would be damaged.
TEST(UpgradeFiles, AControllerReadsTheJobsThatTheLastReleaseStored) {
  const auto facts = controller::DecodeFacts(Recorded("facts.json"));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->name, "recorded");
  EXPECT_EQ(facts->ranks, 2u);
  EXPECT_EQ(facts->name_space, "default");
  const auto job = controller::DecodeJob(Recorded("job.json"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_GE(job->progress.step, 20u);
  EXPECT_THAT(job->ranks, SizeIs(2));
}

// By keys of a later release a trainer is not started: it is of its daemon's release.
TEST(UpgradeFiles, ATrainerReadsTheConfigOfADaemonOfTheLastRelease) {
  const auto config = ParseTrainerConfig(Recorded("config.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(config->rank.has_value());
  EXPECT_EQ(config->rank->world, 2);
  EXPECT_EQ(config->job.steps, 400);
  EXPECT_FALSE(ParseTrainerConfig(WithNextKey(Recorded("config.json"))).ok());
}

TEST_P(Files, ACheckpointDirectoryOfTheLastReleaseIsRead) {
  Put("owner.json", Text("owner.json"));
  Put("epoch-1/lineage.json", Text("lineage.json"));
  const std::vector<std::string> steps = LinesOf("steps.jsonl");
  std::string history;
  for (const std::string& line : steps) absl::StrAppend(&history, line, "\n");
  Put("epoch-1/steps.jsonl", history);
  const std::string job_id = ordered_json::parse(Recorded("owner.json"))["job_id"];
  EXPECT_TRUE(ClaimDirectory(directory_, job_id, 2, LocalStorage()).ok());
  EXPECT_FALSE(ClaimDirectory(directory_, "j-another", 2, LocalStorage()).ok());
  const auto lineage = ReadLineage(directory_);
  ASSERT_TRUE(lineage.ok()) << lineage.status();
  EXPECT_TRUE(lineage->Holds(1, 400));
  size_t read = 0;
  ReadHistory(directory_, *lineage, 0, [&](int64_t epoch, const std::string& line) {
    EXPECT_EQ(epoch, 1);
    EXPECT_TRUE(channel::Decode(line).ok()) << line;
    ++read;
  });
  EXPECT_EQ(read, steps.size());
}

TEST_P(Files, AManifestOfTheLastReleaseIsRead) {
  std::string text = Recorded("manifest.json");
  if (GetParam()) {
    // Its first line is the checksum of all that follows.
    const size_t first = text.find('\n') + 1;
    const std::string rest = "\"next\": {\"a\": 1}," + text.substr(first);
    Sha256 hash;
    hash.Update(rest);
    text = absl::StrCat("{\"manifest_sha256\": \"", hash.HexDigest(), "\",\n", rest);
  }
  const auto manifest = ParseManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_GT(manifest->state.step, 0);
  EXPECT_GT(manifest->size_bytes(), 0u);
  EXPECT_EQ(manifest->state.sequence, 32);
}

}  // namespace
}  // namespace trainyard
