// Runs trainyard-trainer as a process, and writes its configs.

#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"

namespace trainyard::testing {

// Output goes to a file, so that a process that is killed blocks nobody.
class TrainerProcess {
 public:
  TrainerProcess(std::vector<std::string> arguments, std::string output)
      : output_(std::move(output)) {
    const char* bin = std::getenv("TRAINYARD_BIN");
    CHECK(bin != nullptr) << "run by ctest, which sets TRAINYARD_BIN";
    arguments.insert(arguments.begin(), absl::StrCat(bin, "/trainyard-trainer"));
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    // The test has threads: until exec nothing may allocate.
    const int fd = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;
  ~TrainerProcess() {
    if (pid_ > 0) Kill(SIGKILL), Wait();
  }

  // The exit code, or minus the signal.
  int Wait() {
    int status = 0;
    CHECK(::waitpid(pid_, &status, 0) == pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Kill(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }

  std::string Output() const {
    const auto text = ReadFile(output_);
    return text.ok() ? *text : "";
  }
  // Until the output holds `text`; false after a minute. A file has no event to wait for.
  bool WaitForOutput(const std::string& text) const {
    for (int i = 0; i < 12'000; ++i) {
      if (Output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  std::string output_;
  pid_t pid_ = 0;
};

inline std::string FreshDirectory(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  CHECK(RemoveTree(path).ok());
  CHECK(MakeDirectories(path).ok());
  return path;
}

// The job section of a config, indented; a byte model on synthetic data.
inline std::string JobYaml(const std::string& directory, int ranks, int steps,
                           const std::string& more = "") {
  return absl::StrCat(R"(
version: 1
job:
  name: tiny
  model:
    architecture: {family: llama, layers: 1, hidden: 16, ffn: 24, heads: 4, kv_heads: 2, vocab: 256,
                   max_seq: 16}
  precision: F32
  batch: {global: 4, micro: 1, sequence: 16}
  data: {synthetic: {}}
  optimizer: {adamw: {learning_rate: 1e-2}}
  seed: 3
  devices: )",
                      ranks, "\n  steps: ", steps, "\n  checkpoint: {directory: ", directory,
                      "/run, every_steps: 2}\n", more);
}

inline std::string WriteConfig(const std::string& path, const std::string& text) {
  CHECK(WriteFileAtomic(path, text).ok());
  return path;
}

}  // namespace trainyard::testing
