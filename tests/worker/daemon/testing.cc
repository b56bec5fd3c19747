#include "tests/worker/daemon/testing.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/files.h"
#include "nlohmann/json.hpp"
#include "worker/sandbox/landlock.h"

namespace trainyard {
namespace {

std::string Bin() {
  const char* bin = std::getenv("TRAINYARD_BIN");
  CHECK(bin != nullptr) << "run through ctest, which sets TRAINYARD_BIN";
  return bin;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "worker-XXXXXX").string();
  CHECK(::mkdtemp(pattern.data()) != nullptr) << pattern;
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() { (void)RemoveTree(path_); }

bool WaitFor(const std::function<bool()>& condition, absl::Duration timeout) {
  const absl::Duration deadline = RealClock().Monotonic() + timeout;
  while (!condition()) {
    if (RealClock().Monotonic() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

std::string WorkerProgram() { return Bin() + "/trainyard-worker"; }
std::string FakeTrainer() {
  return std::filesystem::path(Bin()).parent_path().string() + "/tests/fake_trainer";
}

std::string SyncShim() {
  return std::filesystem::path(Bin()).parent_path().string() + "/tests/libsync_shim.so";
}

std::string Job(const std::vector<std::string>& actions) {
  return nlohmann::json{{"do", actions}}.dump();
}

StartOrder Order(const std::string& job, uint64_t epoch, const std::vector<std::string>& actions) {
  StartOrder order;
  order.job_id = job;
  order.epoch = epoch;
  order.world = 1;
  order.ranks = {{0, 0}};
  order.job_config = Job(actions);
  return order;
}

DaemonOptions TestOptions(const std::string& state) {
  CHECK(MakeDirectories(state + "/ranks").ok() && MakeDirectories(state + "/root").ok());
  DaemonOptions options;
  options.state_directory = state;
  options.supervisor = WorkerProgram();
  options.trainer = FakeTrainer();
  options.roots = {state + "/root"};
  options.interface = "127.0.0.1";
  options.sandbox = SandboxOptions{.landlock = LandlockVersion() > 0, .hidden = {state}};
  for (uint32_t i = 0; i < 2; ++i) {
    options.devices.push_back({.index = i, .model = "cpu", .memory_bytes = 1 << 30, .threads = 1});
  }
  return options;
}

std::string LogText(const std::string& rank_directory) {
  LogReader reader(rank_directory, 0);
  std::string text;
  const auto read =
      reader.Read({.bytes = 8 << 20, .backlog_bytes = 16 << 20, .with_partial_line = true});
  if (!read.ok()) return text;
  for (const std::string& line : read->lines) text += line + "\n";
  return text;
}

void Listener::Take(const Outgoing& outgoing) {
  if (const auto* notice = std::get_if<Notice>(&outgoing.message)) {
    notices_.push_back(*notice);
    return;
  }
  last_sequence_ = outgoing.sequence;
  const Report& report = std::get<Report>(outgoing.message);
  if (const auto* status = std::get_if<RankStatus>(&report)) {
    statuses_.push_back(*status);
    kinds_.push_back("status");
  } else if (const auto* step = std::get_if<StepReport>(&report)) {
    steps_.push_back(*step);
    kinds_.push_back("step");
  } else {
    checkpoints_.push_back(std::get<CheckpointReport>(report));
    kinds_.push_back("checkpoint");
  }
}

bool Listener::Hear(const std::function<bool()>& condition) {
  return WaitFor([&] {
    while (const auto outgoing = outbox_.Next(absl::ZeroDuration())) Take(*outgoing);
    return condition();
  });
}

std::optional<RankStatus> Listener::Await(const RankId& id, RankState state) {
  std::optional<RankStatus> found;
  Hear([&] {
    for (const RankStatus& status : statuses_) {
      const RankId& of = status;
      if (of == id && status.state == state) found = status;
    }
    return found.has_value();
  });
  return found;
}

bool Listener::AwaitSteps(size_t count) {
  return Hear([&] { return steps_.size() >= count; });
}

bool Listener::AwaitCheckpoints(size_t count) {
  return Hear([&] { return checkpoints_.size() >= count; });
}

bool Listener::AwaitLog(const std::string& text) {
  return Hear([&] {
    for (const Notice& notice : notices_) {
      const auto* log = std::get_if<LogReport>(&notice);
      if (log == nullptr) continue;
      for (const LogRecord& line : log->lines) {
        if (absl::StrContains(line.text, text)) return true;
      }
    }
    return false;
  });
}

}  // namespace trainyard
