// Proves the trainer's program alone, end to end: it trains and prints, resumes to the same bits
// after a kill, stops on SIGTERM, ends for what is wrong with a code and a cause, and answers
// --measure and --generate.

#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "common/files.h"
#include "tests/worker/trainer/trainer_process.h"
#include "train/checkpoint/load.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using ::testing::HasSubstr;
using testing::JobYaml;
using testing::TrainerProcess;
using testing::WriteConfig;

class TrainerAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = FreshDirectory(
        absl::StrCat("alone_", ::testing::UnitTest::GetInstance()->current_test_info()->name()));
  }
  std::string Config(int steps, const std::string& more = "") {
    return WriteConfig(directory_ + "/config.yaml", JobYaml(directory_, 1, steps, more));
  }
  // Runs to the end; the exit code.
  int Run(const std::vector<std::string>& arguments) {
    TrainerProcess trainer(arguments, directory_ + "/output");
    const int code = trainer.Wait();
    output_ = trainer.Output();
    return code;
  }
  std::string Newest() const {
    const auto paths = CompleteCheckpoints(directory_ + "/run");
    return paths.ok() && !paths->empty() ? paths->front() : "";
  }
  std::string Digest() const { return Checkpoint::Open(Newest())->Digest().value(); }

  std::string directory_, output_;
};

TEST_F(TrainerAlone, TrainsPrintsALineAStepAndCheckpoints) {
  ASSERT_EQ(Run({Config(5)}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("step 1/5 | loss 5."));
  EXPECT_THAT(output_, HasSubstr("| train_step_timing in s: "));
  EXPECT_THAT(output_, HasSubstr("MFU"));
  EXPECT_THAT(output_, HasSubstr("cause=completed"));
  EXPECT_THAT(Newest(), HasSubstr("/step-5"));
}

// A CPU has no peak for products in 8 bits.
TEST_F(TrainerAlone, InEightBitsACpuHasNoMfu) {
  const std::string config = absl::StrReplaceAll(JobYaml(directory_, 1, 2),
                                                 {{"precision: F32", "precision: FP8_CURRENT"}});
  const std::string path = WriteConfig(directory_ + "/config.yaml", config);
  ASSERT_EQ(Run({path}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("step 2/2 | loss 5."));
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("MFU")));
}

TEST_F(TrainerAlone, InF64ThereIsNoGpu) {
  const std::string config =
      absl::StrReplaceAll(JobYaml(directory_, 1, 2), {{"precision: F32", "precision: F64"}});
  const std::string path = WriteConfig(directory_ + "/config.yaml", config);
  EXPECT_NE(Run({path, "--device", "cuda"}), 0);
  EXPECT_THAT(output_, HasSubstr("precision: wanted BF16 or F32 or FP8_DELAYED or FP8_CURRENT or "
                                 "FP8_BLOCKWISE or FP8_ROWWISE, which a GPU computes, found F64"));
}

TEST_F(TrainerAlone, ResumesToTheSameBitsAfterAKill) {
  ASSERT_EQ(Run({Config(7)}), 0) << output_;
  const std::string want = Digest();
  ASSERT_TRUE(RemoveTree(directory_ + "/run").ok());
  EXPECT_EQ(Run({Config(7), "--fault", "kill:6"}), -SIGKILL);
  EXPECT_THAT(Newest(), HasSubstr("/step-4"));
  ASSERT_EQ(Run({Config(7)}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("resumed"));
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("step 4/7")));
  EXPECT_EQ(Digest(), want);
}

// Bug it must catch: products prepared for more threads than the environment allows.
TEST_F(TrainerAlone, ALimitOfThreadsChangesNoSum) {
  const auto last_loss = [&] {
    const std::string before = "step 3/3 | loss ";
    EXPECT_THAT(output_, HasSubstr(before));
    return std::atof(output_.c_str() + output_.find(before) + before.size());
  };
  ASSERT_EQ(Run({Config(3)}), 0) << output_;
  const double want = last_loss();
  ASSERT_TRUE(RemoveTree(directory_ + "/run").ok());
  const bool limited = std::getenv("OMP_THREAD_LIMIT") != nullptr;  // The sanitizer's run is.
  if (!limited) ::setenv("OMP_THREAD_LIMIT", "1", 1);
  const int code = Run({Config(3)});
  if (!limited) ::unsetenv("OMP_THREAD_LIMIT");
  ASSERT_EQ(code, 0) << output_;
  EXPECT_NEAR(last_loss(), want, 1e-3);
}

// Bug it must catch: processors that the worker divides, and no rank keeps to.
TEST_F(TrainerAlone, RunsOnItsProcessorsAlone) {
  cpu_set_t usable, own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(usable), &usable), 0);
  size_t last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &usable)) --last;
  const std::string rank = absl::StrCat("rank: {job_id: a, processors: [", last, "]}\n");
  TrainerProcess trainer({Config(1'000'000, rank)}, directory_ + "/output");
  ASSERT_TRUE(trainer.WaitForOutput("step 3/")) << trainer.Output();
  ASSERT_EQ(::sched_getaffinity(trainer.pid(), sizeof(own), &own), 0);
  EXPECT_EQ(CPU_COUNT(&own), 1);
  EXPECT_TRUE(CPU_ISSET(last, &own));
  trainer.Kill(SIGTERM);
  EXPECT_EQ(trainer.Wait(), 0);
}

TEST_F(TrainerAlone, SigtermCheckpointsTheStepAndExitsWithZero) {
  TrainerProcess trainer({Config(1'000'000)}, directory_ + "/output");
  ASSERT_TRUE(trainer.WaitForOutput("step 3/"));
  trainer.Kill(SIGTERM);
  EXPECT_EQ(trainer.Wait(), 0);
  EXPECT_THAT(trainer.Output(), HasSubstr("cause=stopped"));
  EXPECT_TRUE(Checkpoint::Open(Newest())->Verify().ok());
}

TEST_F(TrainerAlone, NotFiniteTwiceFailsAndOnceDoesNot) {
  EXPECT_EQ(Run({Config(4), "--fault", "nan:3"}), 1);
  EXPECT_THAT(output_, HasSubstr("cause=not_finite"));
  EXPECT_THAT(Newest(), HasSubstr("/step-2"));
  EXPECT_EQ(Run({Config(4), "--fault", "nan-once:3"}), 0) << output_;
}

TEST_F(TrainerAlone, WhatIsWrongWithTheInputIsNamed) {
  const std::string missing = directory_ + "/corpus.txt";
  std::string config = JobYaml(directory_, 1, 2);
  config.replace(config.find("{synthetic: {}}"), 15,
                 absl::StrCat("{text: {path: ", missing, ", tokenizer: BYTES}}"));
  EXPECT_EQ(Run({WriteConfig(directory_ + "/missing.yaml", config)}), 1);
  EXPECT_THAT(output_, ::testing::AllOf(HasSubstr("cause=bad_input"), HasSubstr(missing)));

  ASSERT_EQ(Run({Config(2)}), 0);
  std::string wider = JobYaml(directory_, 1, 4);
  wider.replace(wider.find("ffn: 24"), 7, "ffn: 48");
  EXPECT_EQ(Run({WriteConfig(directory_ + "/wider.yaml", wider)}), 1);
  EXPECT_THAT(output_, ::testing::AllOf(HasSubstr("cause=bad_input"), HasSubstr("ffn")));

  EXPECT_EQ(
      Run({WriteConfig(directory_ + "/typo.yaml", JobYaml(directory_, 1, 4, "  stesp: 1\n"))}), 1);
  EXPECT_THAT(output_, ::testing::AllOf(HasSubstr("cause=bad_input"), HasSubstr("stesp")));
}

TEST_F(TrainerAlone, AJobSpecByItselfIsEnough) {
  const std::string recipe = absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/tiny.yaml");
  const std::string spec = ReadFile(recipe).value();
  const std::string here = absl::StrReplaceAll(spec, {{"runs/tiny", directory_ + "/run"}});
  ASSERT_EQ(Run({WriteConfig(directory_ + "/spec.yaml", here)}), 0) << output_;
  EXPECT_THAT(Newest(), HasSubstr("/step-50"));
}

TEST_F(TrainerAlone, WrongUsageIsExitCodeTwo) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({"--no-such-flag"}), 2);
  EXPECT_EQ(Run({Config(1), "--measure"}), 2);
  EXPECT_EQ(Run({Config(1), "--rank", "0"}), 2);
  EXPECT_EQ(Run({Config(1), "--fault", "sing:1"}), 2);
}

TEST_F(TrainerAlone, MeasureAnswersARatePerDType) {
  ASSERT_EQ(Run({"--measure", "--threads", "1"}), 0) << output_;
  const auto rates = nlohmann::json::parse(output_, nullptr, false);
  ASSERT_TRUE(rates.is_object()) << output_;
  for (const char* dtype : {"f64", "f32", "bf16"}) EXPECT_GT(rates.value(dtype, 0.0), 1e6) << dtype;
}

TEST_F(TrainerAlone, DumpsAnyRanksProgramAfterEachPass) {
  const std::string recipe =
      absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/tiny-all-axes.yaml");
  ASSERT_EQ(Run({"--dump-program", recipe, "--rank", "15"}), 0) << output_;
  std::vector<size_t> at;
  for (const char* pass : {"forward", "fuse", "backward", "fuse_backward", "dead", "recompute",
                           "buckets", "optimizer"}) {
    at.push_back(output_.find(absl::StrCat("== after ", pass, "\n")));
    ASSERT_NE(at.back(), std::string::npos) << pass;
  }
  EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
  // Recorded is the whole model; a stage's own part remains.
  const auto blocks = [&](const char* block, size_t begin, size_t end) {
    return output_.substr(begin, end - begin).find(block) != std::string::npos;
  };
  EXPECT_TRUE(blocks("forward block 0 ", at[0], at[1]));
  EXPECT_FALSE(blocks(" add_rms_norm(", at[0], at[1]));
  EXPECT_TRUE(blocks(" add_rms_norm(", at[1], at[2]));
  EXPECT_FALSE(blocks("forward block 0 ", at[4], at[5]));
  EXPECT_FALSE(blocks(" scatter_bucket(", at[5], at[6]));
  EXPECT_TRUE(blocks(" scatter_bucket(", at[6], at[7]));
  EXPECT_THAT(output_, HasSubstr(" (parameters, gradients and optimizer state "));

  EXPECT_EQ(Run({"--dump-program", recipe, "--rank", "16"}), 1);
  EXPECT_THAT(output_, HasSubstr("--rank: wanted 0 to 15, found 16"));
}

// As the command line: on standard input, and in the words of those who come from elsewhere.
TEST_F(TrainerAlone, DumpsTheProgramOfAJobOnStandardInput) {
  const auto run = [&](const std::string& path) {
    const int kept = ::dup(STDIN_FILENO), file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    const int code = Run({"--dump-program", "-"});
    ::dup2(kept, STDIN_FILENO);
    ::close(kept), ::close(file);
    return code;
  };
  EXPECT_EQ(run(absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/tiny.yaml")), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("== after optimizer\n"));
  EXPECT_EQ(run(WriteConfig(directory_ + "/theirs.yaml", "parallelism: {tp_size: 2}\n")), 1);
  EXPECT_THAT(output_, ::testing::StartsWith("error: standard input: "));
  EXPECT_THAT(output_, HasSubstr("parallelism.tp_size: unknown field; here it is "
                                 "parallelism.tensor"));
}

TEST_F(TrainerAlone, GenerateWritesTheSameTextForTheSameSeed) {
  ASSERT_EQ(Run({Config(2)}), 0) << output_;
  const auto generate = [&](const std::string& seed) {
    EXPECT_EQ(Run({"--generate", Newest(), "--prompt", "And", "--tokens", "40", "--seed", seed}),
              0);
    return output_;
  };
  const std::string text = generate("1");
  EXPECT_EQ(text.size(), 3 + 40 + 1u);
  EXPECT_THAT(text, ::testing::StartsWith("And"));
  EXPECT_EQ(generate("1"), text);
  EXPECT_NE(generate("2"), text);
}

TEST_F(TrainerAlone, GenerateWritesALineForEachOfSeveralPrompts) {
  ASSERT_EQ(Run({Config(2)}), 0) << output_;
  const std::vector<std::string> words = {"--generate", Newest(), "--tokens", "9"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(Run(with({"--prompt", "And", "--prompt", "--x", "--batch", "1"})), 0) << output_;
  const std::string one_by_one = output_;
  ASSERT_EQ(Run(with({"--prompt", "And", "--prompt", "--x"})), 0) << output_;
  EXPECT_EQ(output_, one_by_one);
  const std::string file = directory_ + "/prompts.jsonl", out = directory_ + "/out.jsonl";
  ASSERT_TRUE(WriteFileAtomic(file, "{\"prompt\": \"And\"}\n\n{\"prompt\": \"--x\"}").ok());
  ASSERT_EQ(Run(with({"--prompts", file, "--out", out})), 0) << output_;
  EXPECT_EQ(output_, "");
  EXPECT_EQ(*ReadFile(out), one_by_one);
  // The first of several is what it is alone.
  ASSERT_EQ(Run(with({"--prompt", "And"})), 0) << output_;
  const auto first = nlohmann::json::parse(one_by_one.substr(0, one_by_one.find('\n')));
  EXPECT_EQ(output_, "And" + first["generated"].get<std::string>() + "\n");
  EXPECT_EQ(first["tokens"], 9);
  // A file that cannot be written is refused before any text, and an old one stays after a failure.
  EXPECT_EQ(Run(with({"--prompts", file, "--out", directory_ + "/no/out.jsonl"})), 1);
  EXPECT_THAT(output_, HasSubstr("no/out.jsonl"));
  EXPECT_EQ(Run(with({"--prompts", file, "--out", directory_})), 1);
  EXPECT_THAT(output_, HasSubstr("wanted a regular file"));
  ASSERT_TRUE(WriteFileAtomic(file, "{\"prompt\": \"And\"}\n{").ok());
  EXPECT_EQ(Run(with({"--prompts", file, "--out", out})), 1);
  EXPECT_THAT(output_, HasSubstr("prompts.jsonl:2: "));
  EXPECT_EQ(*ReadFile(out), one_by_one);
}

TEST_F(TrainerAlone, GenerateKnowsItsDevices) {
  ASSERT_EQ(Run({Config(1)}), 0) << output_;
  EXPECT_EQ(Run({"--generate", Newest(), "--device", "auto", "--tokens", "3"}), 0) << output_;
  EXPECT_EQ(Run({"--generate", Newest(), "--device", "gpu"}), 1);
  EXPECT_THAT(output_, HasSubstr("--device: wanted auto, cpu or cuda, found 'gpu'"));
}

TEST_F(TrainerAlone, GenerateTakesWeightsInF64AsTheyAre) {
  std::string config = JobYaml(directory_, 1, 1);
  config.replace(config.find("precision: F32"), 14, "precision: F64");
  ASSERT_EQ(Run({WriteConfig(directory_ + "/config.yaml", config)}), 0) << output_;
  EXPECT_EQ(Run({"--generate", Newest(), "--prompt", "And", "--tokens", "40"}), 0);
  EXPECT_EQ(output_.size(), 3 + 40 + 1u);
}

// Bug it must catch: text of a model that was barely trained sets the user's terminal on fire.
TEST_F(TrainerAlone, GenerateSendsATerminalNoControlCharacters) {
  ASSERT_EQ(Run({Config(1)}), 0) << output_;
  const std::vector<std::string> words = {"--generate", Newest(),        "--tokens",
                                          "500",        "--temperature", "100"};
  const auto obeyed = [](char c) {
    return (uint8_t(c) < 0x20 && c != '\n' && c != '\t') || c == '\x7F';
  };
  ASSERT_EQ(Run(words), 0) << output_;
  EXPECT_TRUE(std::any_of(output_.begin(), output_.end(), obeyed)) << "a file gets all of it";
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  ASSERT_TRUE(::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  EXPECT_EQ(TrainerProcess(words, ::ptsname(terminal)).Wait(), 0);
  std::string shown;
  std::array<char, 4096> part;  // As much as a terminal holds before it is read.
  for (ssize_t n; (n = ::read(terminal, part.data(), part.size())) > 0;) {
    shown.append(part.data(), size_t(n));
  }
  ::close(terminal);
  std::erase(shown, '\r');  // The terminal's own.
  EXPECT_GT(shown.size(), 500u);
  EXPECT_TRUE(std::none_of(shown.begin(), shown.end(), obeyed)) << shown;
}

TEST_F(TrainerAlone, GenerateRefusesAModelWhoseTokensAreNotBytes) {
  std::string config = JobYaml(directory_, 1, 1);
  config.replace(config.find("vocab: 256"), 10, "vocab: 300");
  ASSERT_EQ(Run({WriteConfig(directory_ + "/config.yaml", config)}), 0) << output_;
  EXPECT_EQ(Run({"--generate", Newest(), "--prompt", "And the LORD"}), 1);
  EXPECT_THAT(output_, HasSubstr("vocab 300"));
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("And the LORD"))) << "nothing was generated";
}

// Bug it must catch: the program aborts, because it believes what a checkpoint says of its model.
TEST_F(TrainerAlone, GenerateRefusesACheckpointOfNoPossibleModel) {
  ASSERT_EQ(Run({Config(1)}), 0) << output_;
  const std::string newest = Newest();
  Manifest manifest = Checkpoint::Open(newest)->manifest();
  SetField(manifest.state.model, "heads", int64_t{0});
  ASSERT_TRUE(WriteFileAtomic(newest + "/" + kManifestName, ToJson(manifest)).ok());
  EXPECT_EQ(Run({"--generate", newest}), 1);
  EXPECT_THAT(output_, HasSubstr("model.heads: wanted 1 to"));
}

}  // namespace
}  // namespace trainyard
