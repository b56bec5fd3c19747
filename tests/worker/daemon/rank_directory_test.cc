// What the daemon keeps on disk for a rank reads back as it was written, and nothing else is taken
// for it.

#include "worker/daemon/rank_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "nlohmann/json.hpp"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/rank_config.h"
#include "worker/daemon/spool.h"
#include "worker/daemon/state_directory.h"

namespace trainyard {
namespace {

TEST(RankDirectoryTest, NamesReadBack) {
  const RankId id = {"j-00.1a", 12, 3};
  const auto parsed = RankDirectory::ParseName(id.Name());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, id);
}

TEST(RankDirectoryTest, OtherNamesAreRefused) {
  for (const char* name :
       {"", "j", "j.1", ".1.2", "j.1.x", "j.-1.2", "j.01.2", "j/k.1.2", "..1.2"}) {
    EXPECT_FALSE(RankDirectory::ParseName(name).ok()) << name;
  }
}

// Bug it must catch: a job id that leads out of the state directory.
TEST(RankDirectoryTest, JobIdsThatAreNoNamesAreRefused) {
  for (const char* id : {"", ".", "..", "../x", "a/b", ".hidden", "a b", "a\n"}) {
    EXPECT_FALSE(RankDirectory::IsLegalJobId(id)) << id;
  }
  EXPECT_FALSE(RankDirectory::IsLegalJobId(std::string(65, 'a')));
  EXPECT_TRUE(RankDirectory::IsLegalJobId("j-0001"));
}

TEST(RankDirectoryTest, ExitReportsReadBack) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/exit_report.json";
  const RankExit exit = {ExitCause::kSignal, 9, 0, "it had \"said\":\nthis"};
  ASSERT_TRUE(WriteExitReport(path, exit).ok());
  const auto read = ReadExitReport(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cause, exit.cause);
  EXPECT_EQ(read->signal, 9);
  EXPECT_EQ(read->message, exit.message);
}

// Bug it must catch: a digit that is another one on the disk, and is believed.
TEST(RankDirectoryTest, NoFlippedBitChangesWhatIsRead) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/file.json";
  const auto flip = [&](const auto& same) {
    const std::string good = *ReadFile(path, 1 << 20);
    for (size_t byte = 0; byte < good.size(); ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string text = good;
        text[byte] = char(text[byte] ^ (1 << bit));
        ASSERT_TRUE(WriteFileAtomic(path, text).ok());
        EXPECT_TRUE(same()) << "byte " << byte << " bit " << bit << ": " << text;
      }
    }
  };
  ASSERT_TRUE(WriteExitReport(path, {ExitCause::kSignal, 9, 0, "killed"}).ok());
  flip([&] {
    const auto read = ReadExitReport(path);
    return !read.ok() || (read->cause == ExitCause::kSignal && read->signal == 9 &&
                          read->exit_code == 0 && read->message == "killed");
  });
  ASSERT_TRUE(WriteSupervisor(path, {.pid = 4711, .start_time = 123456}).ok());
  flip([&] {
    const auto read = ReadSupervisor(path);
    return !read.ok() || (read->pid == 4711 && read->start_time == 123456);
  });
  const RankDirectory rank(directory.path());
  Launch written;
  written.trainer = "/bin/trainer";
  written.device = 5;
  ASSERT_TRUE(WriteLaunch(rank, written).ok());
  const std::string launch = rank.File("launch.json");
  ASSERT_EQ(::rename(launch.c_str(), path.c_str()), 0);
  flip([&] {
    const auto read = ReadLaunch(path);
    return !read.ok() || (read->trainer == "/bin/trainer" && read->device == 5);
  });
}

TEST(RankDirectoryTest, ReportsOfAnotherVersionOrFormAreErrors) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/exit_report.json";
  for (const char* text : {"", "[]", "{}", "{\"version\": 2}", "{\"version\": 1"}) {
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
    EXPECT_FALSE(ReadExitReport(path).ok()) << text;
  }
}

// Returns the config of rank 0 of the order on this device.
nlohmann::json ConfigOn(const Device& device, StartOrder order, const RankDirectory& directory) {
  DaemonOptions options = TestOptions(directory.path());
  options.interface = "eth0";
  options.devices.assign(device.index + 1, device);
  order.roots = {"/data"};
  const auto text = TrainerConfigText(options, order, {0, device.index}, directory);
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(text.value_or("{}"));
}

TEST(RankConfigTest, HasTheJobAsItCameAndThePeakOfItsDtype) {
  TemporaryDirectory directory;
  StartOrder order = Order("job", 4, {});
  order.job_config = R"({"precision": "PRECISION_F32", "seed": "7"})";
  order.claimed = true;
  order.recorded_step = 2;
  order.history_after = 3;
  const Device device = {.index = 0,
                         .model = "cpu",
                         .memory_bytes = uint64_t{5} << 30,
                         .threads = 3,
                         .peaks = {{"f32", 5e9}, {"bf16", 7e9}},
                         .processors = {4, 5, 6}};
  const auto config = ConfigOn(device, order, RankDirectory(directory.path(), {"job", 4, 0}));
  EXPECT_EQ(config["version"], 1);
  EXPECT_EQ(config["job"], nlohmann::json::parse(order.job_config));
  EXPECT_EQ(config["rank"]["peak_flops_by_dtype"], nlohmann::json({{"f32", 5e9}, {"bf16", 7e9}}));
  EXPECT_EQ(config["rank"]["threads"], 3);
  EXPECT_EQ(config["rank"]["processors"], nlohmann::json({4, 5, 6}));
  EXPECT_EQ(config["rank"]["memory_bytes"], uint64_t{5} << 30);
  EXPECT_FALSE(config["rank"].contains("host_memory_bytes"));  // The device is the host.
  EXPECT_EQ(config["rank"]["claimed"], true);
  EXPECT_EQ(config["rank"]["recorded_step"], 2);
  EXPECT_EQ(config["rank"]["history_after"], 3);
  EXPECT_EQ(config["rank"]["socket"], directory.path() + "/ranks/job.4.0/socket");
  EXPECT_EQ(config["rank"]["device_kind"], "CPU");
  EXPECT_EQ(config["rank"]["device_uuid"], "");
  EXPECT_EQ(config["rank"]["interface"], "eth0");
  EXPECT_EQ(config["rank"]["roots"], nlohmann::json({"/data"}));
}

TEST(RankConfigTest, NamesTheGpuWithItsMemoryAndTheDataSheetsPeak) {
  TemporaryDirectory directory;
  StartOrder order = Order("job", 4, {});
  const Device device = {.index = 2,
                         .model = "NVIDIA H200",
                         .memory_bytes = 150'000'000'000,
                         .threads = 4,
                         .peaks = {{"bf16", 989e12}, {"f32", 67e12}},
                         .gpu = Gpu{.index = 6, .uuid = "GPU-8a56", .driver_version = "580"},
                         .host_memory_bytes = 250'000'000'000};
  const nlohmann::json rank =
      ConfigOn(device, order, RankDirectory(directory.path(), {"job", 4, 0}))["rank"];
  EXPECT_EQ(rank["device_kind"], "CUDA");
  EXPECT_EQ(rank["device"], 2);
  EXPECT_EQ(rank["device_uuid"], "GPU-8a56");
  EXPECT_EQ(rank["memory_bytes"], 150'000'000'000);
  EXPECT_EQ(rank["host_memory_bytes"], 250'000'000'000);
  EXPECT_EQ(rank["peak_flops_by_dtype"], nlohmann::json({{"bf16", 989e12}, {"f32", 67e12}}));
}

TEST(StateDirectoryTest, TheWorkerKeepsItsIdAndASecondDaemonIsRefused) {
  TemporaryDirectory directory;
  std::string id;
  {
    const auto first = StateDirectory::Open(directory.path() + "/state");
    ASSERT_TRUE(first.ok()) << first.status();
    id = (*first)->worker_id();
    const auto second = StateDirectory::Open(directory.path() + "/state");
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  }
  const auto later = StateDirectory::Open(directory.path() + "/state");
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ((*later)->worker_id(), id);
}

// Bug it must catch: one that is made closed is opened to the ranks' user, or to all.
TEST(StateDirectoryTest, OtherUsersSeeNoNamesInIt) {
  TemporaryDirectory directory;
  const std::string state = directory.path() + "/state";
  for (const auto& [before, after] : std::map<mode_t, mode_t>{{0755, 0711}, {0700, 0700}}) {
    ASSERT_TRUE(MakeDirectories(state + "/ranks").ok());
    for (const std::string& path : {state, state + "/ranks"}) {
      ASSERT_EQ(::chmod(path.c_str(), before), 0);
    }
    ASSERT_TRUE(StateDirectory::Open(state).ok());
    for (const std::string& path : {state, state + "/ranks"}) {
      struct stat info = {};
      ASSERT_EQ(::stat(path.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, after) << path;
    }
  }
}

// The directories of a job that a rank could not make beside what is hidden.
TEST(RankConfigTest, KnowsTheDirectoriesThatTheJobMakes) {
  StartOrder order = Order("job", 1, {});
  EXPECT_THAT(DirectoriesOf(order), ::testing::IsEmpty());
  order.job_config = R"({"checkpoint": {"directory": "run"}, "profile": {"directory": "/p"}})";
  EXPECT_THAT(DirectoriesOf(order), ::testing::ElementsAre("run", "/p"));
  order.claimed = true;
  EXPECT_THAT(DirectoriesOf(order), ::testing::ElementsAre("/p")) << "a share that is not mounted";
  order.job_config = R"({"checkpoint": 1, "profile": {"directory": 2}})";
  EXPECT_THAT(DirectoriesOf(order), ::testing::IsEmpty());
}

channel::Checkpoint Report(uint64_t number) { return {number, absl::StrCat(number), 0, 0}; }

// Each recovered report's number.
std::vector<uint64_t> Recovered(const std::string& directory) {
  std::vector<uint64_t> numbers;
  absl::Duration left = kReadPatience;
  const auto adopt = [&](const channel::Message& message) {
    numbers.push_back(std::get<channel::Checkpoint>(message).step);
    return numbers.size();
  };
  Spool(directory, "spool").Recover(adopt, left);
  return numbers;
}

std::vector<uint64_t> Numbers(uint64_t from, uint64_t to) {
  std::vector<uint64_t> numbers;
  while (from <= to) numbers.push_back(from++);
  return numbers;
}

constexpr uint64_t kSpoolBytes = 16'000;  // About 200 of these reports, 13 to a file.

TEST(SpoolTest, ALaterOneRecoversInOrderWhatWasNotAcknowledged) {
  TemporaryDirectory directory;
  Spool spool(directory.path(), "spool", kSpoolBytes);
  for (uint64_t i = 1; i <= 100; ++i) EXPECT_EQ(spool.Append(Report(i), i), 0u);
  spool.Acknowledge(50);
  const std::vector<uint64_t> recovered = Recovered(directory.path());
  // Whole files go, so that a few that were acknowledged may come again.
  ASSERT_GE(recovered.size(), 50u);
  EXPECT_LE(recovered.size(), 65u);
  EXPECT_EQ(recovered, Numbers(101 - recovered.size(), 100));
}

// Bug it must catch: a count of acknowledgements that takes the dropped ones for later ones, and so
// forgets what nobody has acknowledged.
TEST(SpoolTest, ABoundThatDropsTheOldestMiscountsNoAcknowledgement) {
  TemporaryDirectory directory;
  Spool spool(directory.path(), "spool", kSpoolBytes);
  uint64_t dropped = 0;
  for (uint64_t i = 1; i <= 300; ++i) dropped += spool.Append(Report(i), i);
  EXPECT_GT(dropped, 50u);
  EXPECT_EQ(Recovered(directory.path()), Numbers(dropped + 1, 300));
  spool.Acknowledge(dropped);  // All gone already: none that is left is among them.
  EXPECT_EQ(Recovered(directory.path()), Numbers(dropped + 1, 300));
  spool.Acknowledge(299);
  EXPECT_EQ(Recovered(directory.path()).back(), 300u);
  spool.Acknowledge(300);
  EXPECT_THAT(Recovered(directory.path()), ::testing::IsEmpty());
}

TEST(SpoolTest, OneThatIsAcknowledgedLeavesNothing) {
  TemporaryDirectory directory;
  Spool first(directory.path(), "spool", kSpoolBytes);
  for (uint64_t i = 1; i <= 40; ++i) {
    first.Append(Report(i), i);
    first.Acknowledge(i);
  }
  first.Append(Report(41), 41);
  EXPECT_THAT(Recovered(directory.path()), ::testing::ElementsAre(41));
}

TEST(SpoolTest, WhatWasRecoveredIsAcknowledgedLikeTheRest) {
  TemporaryDirectory directory;
  Spool(directory.path(), "spool").Append(Report(7), 70);
  Spool second(directory.path(), "spool");
  absl::Duration left = kReadPatience;
  second.Recover([](const channel::Message&) { return 1; }, left);
  second.Append(Report(8), 2);
  second.Acknowledge(1);
  EXPECT_THAT(Recovered(directory.path()), ::testing::ElementsAre(8));
}

}  // namespace
}  // namespace trainyard
