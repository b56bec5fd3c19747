// A trainer without an engine: does one after the other what the list `do` in its job config says.
//
//   ready | step:N (records up to N) | checkpoint:N | set:KEY=VALUE | get:KEY (prints the value)
//   print:TEXT | print_environment:NAME | flood:BYTES | fork (a child, its child and
//   that one's, each in a session of its own, which never end) | ignore_sigterm |
//   report:CAUSE:MESSAGE | flush | wait_stop | wait | kill:SIGNAL | exit:CODE
//
// `fake_trainer --measure --threads N` answers as a trainer does.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "common/files.h"
#include "nlohmann/json.hpp"
#include "worker/channel/client.h"

namespace trainyard {
namespace {

class FakeTrainer {
 public:
  explicit FakeTrainer(nlohmann::json config) : config_(std::move(config)) {
    const auto& rank = config_["rank"];
    channel_ = channel::ChannelClient::Create(
        {.path = rank["socket"],
         .hello = {rank["job_id"], rank["epoch"], rank["rank"], ::getpid()},
         .progress =
             [this] { return channel::Progress{.phase = "step", .step = step_, .count = step_}; },
         .on_stop = {}});
  }

  void Do(const std::string& action) {
    const size_t colon = action.find(':');
    const std::string verb = action.substr(0, colon);
    const std::string argument = colon == std::string::npos ? "" : action.substr(colon + 1);
    if (verb == "ready") channel_->SendReady({argument.empty() ? 0 : std::stoull(argument), {}});
    if (verb == "step") Steps(std::stoull(argument));
    if (verb == "checkpoint") {
      channel_->SendCheckpoint({std::stoull(argument), "/data/step-" + argument, 1000, 0.5});
    }
    if (verb == "set") {
      const size_t equals = argument.find('=');
      channel_->Set(argument.substr(0, equals), argument.substr(equals + 1));
    }
    if (verb == "get") {
      const auto value = channel_->Get(argument, absl::Seconds(60));
      std::cout << "got " << (value.ok() ? *value : std::string(value.status().message())) << "\n"
                << std::flush;
    }
    if (verb == "print") std::cout << argument << "\n" << std::flush;
    if (verb == "print_environment") {
      const char* value = std::getenv(argument.c_str());
      std::cout << argument << "=" << (value == nullptr ? "(unset)" : value) << "\n" << std::flush;
    }
    if (verb == "flood") Flood(std::stoull(argument));
    if (verb == "fork") Fork();
    if (verb == "ignore_sigterm") ::signal(SIGTERM, SIG_IGN);
    if (verb == "report") Report(argument);
    if (verb == "flush") (void)channel_->Flush(absl::Seconds(60));
    if (verb == "wait_stop") {
      while (!channel_->stop_requested()) ::usleep(1000);
    }
    if (verb == "wait") {
      for (;;) ::pause();
    }
    if (verb == "kill") ::kill(::getpid(), std::stoi(argument));
    if (verb == "exit") std::_Exit(std::stoi(argument));
  }

 private:
  void Steps(uint64_t last) {
    while (step_ < last) {
      channel::Step step;
      step.step = ++step_;
      step.loss = 1.0 / double(step_);
      step.seconds = 0.01;
      step.phases.grad_sync = 0.002;
      step.memory_bytes = 2000;
      step.memory_planned_bytes = 1000;
      step.model_flops = 1e9;
      channel_->SendStep(step);
    }
  }

  void Flood(uint64_t bytes) {
    const std::string line(99, 'x');
    for (uint64_t i = 0; i < bytes / 100; ++i) std::cout << line << '\n';
    std::cout << std::flush;
  }

  // Each but the last has a child: whoever kills one finds the next.
  void Fork() {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setsid();
      for (int descendants = 2; descendants > 0 && ::fork() == 0; --descendants) ::setsid();
      for (;;) ::pause();
    }
    std::cout << "grandchild " << child << "\n" << std::flush;
  }

  void Report(const std::string& argument) {
    const size_t colon = argument.find(':');
    const nlohmann::json report = {{"version", 1},
                                   {"cause", argument.substr(0, colon)},
                                   {"message", argument.substr(colon + 1)}};
    (void)WriteFileAtomic(config_["rank"]["exit_report"], report.dump());
  }

  nlohmann::json config_;
  std::atomic<uint64_t> step_ = 0;
  std::unique_ptr<channel::ChannelClient> channel_;  // Last: it asks for the step.
};

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (std::string(argv[1]) == "--measure") {
    std::cout << "{\"f32\": 1e11, \"bf16\": 2e11, \"f64\": 5e10}"
              << "\n"
              << std::flush;
    return 0;
  }
  std::ifstream file(argv[1]);
  const nlohmann::json config = nlohmann::json::parse(file);
  trainyard::FakeTrainer trainer(config);
  for (const std::string action : config["job"]["do"]) trainer.Do(action);
  return 0;
}
