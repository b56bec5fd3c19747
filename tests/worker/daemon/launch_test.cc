// Proves that a job's spec cannot change which program is started for a rank, nor the program's
// arguments, environment or user. The test makes thousands of random specs, with a new seed each
// time. The launch of each must equal that of an ordinary spec, apart from the directories that the
// sandbox makes. security_no_code_in_specs_test shows the same for fewer specs, with the programs
// and strace.

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "nlohmann/json.hpp"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/environment.h"
#include "worker/daemon/rank.h"
#include "worker/daemon/rank_config.h"

namespace trainyard {
namespace {

using nlohmann::json;

constexpr int kSpecs = 20'000;  // In one run; --gtest_repeat=N makes other ones.
constexpr int kReadBackEvery = 10;

const char* const kTexts[] = {"$(touch /tmp/x)",
                              "`touch /tmp/x`",
                              "; touch /tmp/x",
                              "a\" --fault=kill:1 \"b",
                              "--measure",
                              "\nLD_PRELOAD=/tmp/x.so\n",
                              "LD_PRELOAD=/tmp/x.so",
                              "NCCL_NET_PLUGIN=/tmp/x.so",
                              "PATH=/tmp",
                              "/bin/sh",
                              "../../bin/sh",
                              "..",
                              "/",
                              "/proc/self/exe",
                              "%s%n%s%n",
                              "\", \"environment\": [\"LD_PRELOAD=/tmp/x.so\"], \"x\": \"",
                              "\\u0000",
                              "\u202e/bin/sh",
                              ""};
// The members of launch.json and of its sandbox are among the names.
const char* const kNames[] = {
    "checkpoint", "profile",           "directory", "model",       "data",       "text",
    "path",       "init_from",         "name",      "environment", "trainer",    "user",
    "uid",        "working_directory", "sandbox",   "umask",       "device",     "landlock",
    "precision",  "version",           "arguments", "writable",    "LD_PRELOAD", "log_files"};

class RandomSpec {
 public:
  explicit RandomSpec(uint32_t seed) : random_(seed) {}

  std::string Next() {
    if (Below(20) == 0) return Bytes();
    json spec = Object(3);
    if (Below(2) == 0) spec["checkpoint"]["directory"] = Text();
    if (Below(2) == 0) spec["profile"]["directory"] = Text();
    return spec.dump(-1, ' ', false, json::error_handler_t::replace);
  }

 private:
  uint32_t Below(uint32_t end) { return uint32_t(random_() % end); }
  std::string Bytes() {
    std::string bytes(Below(40), '\0');
    for (char& byte : bytes) byte = char(Below(256));
    return bytes;
  }
  std::string Text() {
    std::string text;
    for (uint32_t i = 0; i <= Below(3); ++i) {
      text += Below(5) == 0 ? Bytes() : kTexts[Below(std::size(kTexts))];
    }
    return text;
  }
  json Value(int depth) {
    switch (Below(depth > 0 ? 5 : 3)) {
      case 0:
        return Below(2000);
      case 1:
        return Below(2) == 0;
      case 2:
        return Text();
      case 3:
        return json::array({Text(), Value(depth - 1)});
      default:
        return Object(depth - 1);
    }
  }
  json Object(int depth) {
    json object = json::object();
    for (uint32_t i = Below(6); i > 0; --i) {
      const std::string name = Below(4) == 0 ? Text() : kNames[Below(std::size(kNames))];
      object[name] = Value(depth);
    }
    // These two are objects, or the next lines of the caller would have no place.
    for (const char* section : {"checkpoint", "profile"}) {
      if (object.contains(section) && !object[section].is_object()) object.erase(section);
    }
    return object;
  }

  std::mt19937 random_;
};

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() : options_(TestOptions(state_.path())), directory_(state_.path(), {"j-1", 3, 0}) {
    const char* const environment[] = {"HOME=/home/trainyard", "LANG=C",
                                       "LD_PRELOAD=/opt/x.so", "LD_AUDIT=/opt/x.so",
                                       "PATH=/usr/bin",        nullptr};
    options_.environment = TrainerEnvironment(environment);
    options_.sandbox = SandboxOptions{
        .user = RankUser{"ranks", 1000, 1000, {1000}}, .landlock = true, .hidden = {state_.path()}};
    EXPECT_TRUE(MakeDirectories(directory_.path()).ok());
  }

  // As the daemon makes the launch. With `read_back`, as the supervisor reads it from launch.json.
  Launch Launched(const std::string& job_config, bool read_back) {
    StartOrder order;
    order.job_id = "j-1", order.epoch = 3, order.roots = options_.roots;
    order.ranks = {{0, 0}}, order.job_config = job_config;
    num_directories_ += DirectoriesOf(order).size();
    const Launch launch = LaunchOf(options_, 0, directory_, order);
    if (!read_back) return launch;
    EXPECT_TRUE(WriteLaunch(directory_, launch).ok());
    auto read = ReadLaunch(directory_.File("launch.json"));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or(Launch());
  }

  TemporaryDirectory state_;
  DaemonOptions options_;
  const RankDirectory directory_;
  size_t num_directories_ = 0;  // That the specs named.
};

TEST_F(LaunchTest, NoSpecChangesWhatIsStarted) {
  const uint32_t seed = std::random_device()();
  RandomSpec specs(seed);
  const Launch usual = Launched(R"({"name": "a", "checkpoint": {"directory": "c"}})", true);
  const std::vector<std::string> arguments = {FakeTrainer(), directory_.File("config.json")};
  const std::vector<std::string> environment = {
      "HOME=/home/trainyard",    "LANG=C",
      "OMP_WAIT_POLICY=passive", absl::StrCat("OMP_NUM_THREADS=", options_.devices[0].threads),
      "CUDA_VISIBLE_DEVICES=",   RankDirectory::Marker(directory_.path())};
  ASSERT_TRUE(usual.sandbox && usual.sandbox->user);
  for (int i = 0; i < kSpecs; ++i) {
    const std::string spec = specs.Next();
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", spec ", i, ": ", spec));
    const Launch launch = Launched(spec, i % kReadBackEvery == 0);
    ASSERT_EQ(TrainerArguments(launch, directory_), arguments);
    ASSERT_EQ(launch.environment, environment);
    ASSERT_EQ(launch.working_directory, usual.working_directory);
    ASSERT_EQ(launch.umask, usual.umask);
    ASSERT_EQ(launch.device, usual.device);
    ASSERT_EQ(launch.log_files, usual.log_files);
    ASSERT_TRUE(launch.sandbox && launch.sandbox->user);
    ASSERT_EQ(launch.sandbox->user->uid, usual.sandbox->user->uid);
    ASSERT_EQ(launch.sandbox->user->groups, usual.sandbox->user->groups);
    ASSERT_EQ(launch.sandbox->landlock, usual.sandbox->landlock);
    ASSERT_EQ(launch.sandbox->writable, usual.sandbox->writable);
    ASSERT_EQ(launch.sandbox->hidden, usual.sandbox->hidden);
    ASSERT_EQ(launch.sandbox->readable, usual.sandbox->readable);
  }
  EXPECT_GT(num_directories_, size_t(kSpecs) / 2) << "too few specs name a place";
}

}  // namespace
}  // namespace trainyard
