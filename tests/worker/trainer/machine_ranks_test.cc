// Proves a model that several processes hold together through the trainer's program: it generates
// and evaluates what one process does, also with prompts from standard input, which only one
// process may read. A process that is lost ends the command, which says which one, and no process
// stays behind the one that the user has started.

#include "worker/trainer/machine_ranks.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/worker/trainer/trainer_process.h"
#include "worker/trainer/follower_processes.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using ::testing::HasSubstr;
using testing::JobYaml;
using testing::TrainerProcess;
using testing::WriteConfig;

class MachineRanksTest : public ::testing::Test {
 protected:
  MachineRanksTest()
      : directory_(FreshDirectory(absl::StrCat(
            "ranks_", ::testing::UnitTest::GetInstance()->current_test_info()->name()))),
        checkpoint_(directory_ + "/run") {
    const std::string job = absl::StrReplaceAll(JobYaml(directory_, 1, 4), {{"F32", "F64"}});
    CHECK(Run({WriteConfig(directory_ + "/config.yaml", job)}) == 0) << output_;
  }

  // Runs to the end; the exit code.
  int Run(const std::vector<std::string>& arguments) {
    TrainerProcess trainer(arguments, directory_ + "/output");
    const int code = trainer.Wait();
    output_ = trainer.Output();
    return code;
  }

  // What the program with these arguments prints with so many ranks.
  std::string With(int ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--threads=2", absl::StrCat("--tensor=", ranks)});
    EXPECT_EQ(Run(arguments), 0) << output_;
    return output_;
  }

  // A program of two ranks that writes a long text, and has begun to.
  std::unique_ptr<TrainerProcess> LongText() {
    auto trainer = std::make_unique<TrainerProcess>(
        std::vector<std::string>{"--generate", checkpoint_, "--prompt", "begun", "--tokens",
                                 "1000000", "--tensor=2"},
        directory_ + "/long");
    EXPECT_TRUE(trainer->WaitForOutput("begun"));
    return trainer;
  }

  static pid_t FollowerOf(const TrainerProcess& trainer) {
    const std::string pid = absl::StrCat(trainer.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    pid_t follower = 0;
    CHECK(children >> follower) << "no follower";
    return follower;
  }

  const std::string directory_, checkpoint_;
  std::string output_;
};

TEST_F(MachineRanksTest, WriteAndMeasureWhatOneRankDoes) {
  const std::string prompts = directory_ + "/prompts.jsonl";
  std::ofstream(prompts) << R"({"prompt": "a"}
{"prompt": "beyond the window of the model"}
{"prompt": "bc"}
)";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--generate", checkpoint_, "--prompt", "In the", "--tokens=40", "--temperature=1"},
           {"--generate", checkpoint_, "--prompts", prompts, "--tokens=20", "--temperature=1"},
           {"--evaluate", checkpoint_, "--data", prompts, "--field", "prompt"}}) {
    const std::string want = With(1, arguments);
    EXPECT_GT(want.size(), 40u);
    for (const int ranks : {2, 4}) EXPECT_EQ(With(ranks, arguments), want) << ranks << " ranks";
  }
}

TEST_F(MachineRanksTest, ALostRankEndsTheCommand) {
  const auto trainer = LongText();
  ::kill(FollowerOf(*trainer), SIGKILL);
  EXPECT_EQ(trainer->Wait(), 1);
  EXPECT_THAT(trainer->Output(), HasSubstr("error: rank 1 was killed by signal 9"));
}

TEST_F(MachineRanksTest, NoRankStaysBehindRank0) {
  const auto trainer = LongText();
  const pid_t of = FollowerOf(*trainer);
  const std::string follower = absl::StrCat("/proc/", of, "/stat");
  ::kill(of, SIGSTOP);  // It cannot notice anything by itself.
  trainer->Kill(SIGKILL);
  trainer->Wait();
  // Whoever is its parent now may not have waited for it. There is no event to wait for.
  const auto runs = [&] {
    std::ifstream stat(follower);
    std::string pid, name, state;
    return bool(stat >> pid >> name >> state) && state != "Z" && state != "X";
  };
  for (int i = 0; i < 12'000 && runs(); ++i)
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(absl::Milliseconds(5)));
  EXPECT_FALSE(runs());
}

TEST_F(MachineRanksTest, RefuseWhatTheyCannotDivide) {
  EXPECT_EQ(Run({"--generate", checkpoint_, "--tensor=3"}), 1);
  EXPECT_THAT(output_, HasSubstr("error: tensor: wanted a number that divides "));
  EXPECT_THAT(output_, HasSubstr("found 3; nearest 2"));
  std::unique_ptr<FollowerProcesses> followers;
  EXPECT_THAT(
      std::string(
          LeadRanks({.size = 3, .device = "cuda", .gpus = "4,7"}, followers).status().message()),
      HasSubstr(
          "tensor: wanted at most 2 ranks, one for each GPU of CUDA_VISIBLE_DEVICES, found 3"));
  // Files of a driver, of which four are a GPU's.
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidia7", "nvidiactl", "nvidia-uvm"}) {
    std::ofstream(directory_ + "/" + name) << "";
  }
  for (const std::optional<std::string>& gpus :
       {std::optional<std::string>(), std::optional<std::string>("0,1,2,3,4,5,6,7")}) {
    const MachineRanks ranks = {
        .size = 8, .device = "cuda", .gpus = gpus, .device_files = directory_};
    EXPECT_THAT(std::string(LeadRanks(ranks, followers).status().message()),
                HasSubstr("tensor: wanted at most 4 ranks, one for each GPU of this machine, "
                          "found 8"));
  }
  // Eight ranks may share four GPUs.
  const auto shared =
      GpusOf({.size = 8, .device = "cuda", .gpus = "0,1,2,3,0,1,2,3", .device_files = directory_});
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(absl::StrJoin(*shared, ","), "0,1,2,3,0,1,2,3");
}

// As one process does, which the signal of a closed pipe ends. Gloo ignores that signal. All tokens
// would take many minutes.
TEST_F(MachineRanksTest, EndWithWhoeverReadsTheirTexts) {
  const std::string prompts = directory_ + "/prompts.jsonl", code = directory_ + "/code";
  std::ofstream(prompts) << R"({"prompt": "a"})";
  for (const std::string& what : {std::string("--prompt begun"), "--prompts " + prompts}) {
    for (const int ranks : {1, 2}) {
      const std::string command =
          absl::StrCat("{ $TRAINYARD_BIN/trainyard-trainer --generate ", checkpoint_, " ", what,
                       " --tokens 200000 --tensor=", ranks, " 2>", directory_, "/errors; echo $? >",
                       code, "; } | :");
      ASSERT_EQ(std::system(command.c_str()), 0);
      EXPECT_EQ(*ReadFile(code), absl::StrCat(128 + SIGPIPE, "\n")) << what << ", " << ranks;
      EXPECT_EQ(*ReadFile(directory_ + "/errors"), "");
    }
  }
}

TEST(FollowerProcesses, AWaitForARankThatHasEndedSaysHow) {
  // This program ends for want of such an option.
  auto followers = FollowerProcesses::Start(2, [](int, const std::string&) {
    return FollowerProcesses::Command{.arguments = {"--help"}, .variables = {}};
  });
  ASSERT_TRUE(followers.ok()) << followers.status();
  const auto rendezvous = (*followers)->NewRendezvous();
  EXPECT_THAT(std::string(rendezvous->Get("key", absl::Minutes(1)).status().message()),
              HasSubstr("rank 1 exited with 0"));
  ASSERT_TRUE(rendezvous->Set("a/b", "value").ok());
  EXPECT_EQ(*rendezvous->Get("a/b", absl::Minutes(1)), "value");
}

// On GPUs nothing else notices this. The follower is this program, which lists its tests and ends.
TEST(FollowerProcesses, AWatchNoticesThatOneHasEnded) {
  const auto lists = [](int, const std::string&) {
    return FollowerProcesses::Command{.arguments = {"--gtest_list_tests"}, .variables = {}};
  };
  const auto followers = FollowerProcesses::Start(3, lists);
  ASSERT_TRUE(followers.ok()) << followers.status();
  std::promise<void> noticed;
  const std::jthread watch = (*followers)->Watch([&] { noticed.set_value(); });
  EXPECT_EQ(noticed.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_THAT((*followers)->Ended(absl::ZeroDuration()), HasSubstr("exited with 0"))
      << "the watch leaves the process for who asks how it ended";
}

}  // namespace
}  // namespace trainyard
