// A whole service in a fresh directory, through the real binaries: `trainyard up`, and the command
// line against it.

#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace trainyard::cli {
class Client;
}
namespace trainyard::v1 {
class Job;
}

namespace trainyard::testing {

struct ServiceOptions {
  int workers = 2;
  int devices_per_worker = 1;
  // Not empty: instead of the workers of `up` one worker, with these flags.
  std::vector<std::string> worker_flags = {};
  std::vector<std::string> up_flags = {};  // Further ones.
};

// A spec as text with the fields that tests vary. Two layers of a llama, synthetic data.
struct TestJob {
  std::string name = "e2e";
  int steps = 20;
  int devices = 1;
  int checkpoint_every = 0;    // 0: no checkpoint section.
  std::string directory = "";  // Of checkpoints.
  int micro = 2;               // Of 4 sequences.
  int hidden = 32;
  std::string precision = "F32";
  std::string adamw = "learning_rate: 3e-3";
  std::string moe = "";    // Fields of it make the model one with experts.
  std::string model = "";  // Another one, in place of all that is said of it above.
  std::string data = "synthetic: {}";
  std::string more = "";  // Further lines.

  std::string Text() const;
};

class Service {
 public:
  explicit Service(const ServiceOptions& options = {});
  // Ends everything, and expects that nothing is left running.
  ~Service();

  const std::string& directory() const { return directory_; }
  const std::string& address() const { return address_; }
  const std::string& metrics_url() const { return metrics_url_; }
  Process& up() { return *processes_.back(); }
  // Another `up` on the same state, after the first one ended.
  void StartAgain();
  // Where worker_flags are given: the process "controller" or "worker", and another one in its
  // place, after it ended.
  Process& part(const std::string& name) { return *processes_.at(parts_.at(name).process); }
  void StartAgain(const std::string& name);

  // Runs `trainyard WORDS` with this controller in the service's directory, to its end.
  Finished Trainyard(const std::vector<std::string>& words);
  // The same for any program of the build.
  Finished Run(const std::string& program, const std::vector<std::string>& words);

  // Submits and returns the job's id; a test failure and "" if that is refused.
  std::string Submit(const TestJob& job);
  // Writes a file into the service's directory; returns its path.
  std::string Write(const std::string& name, const std::string& text);

  nlohmann::json Job(const std::string& id);  // As `trainyard get` shows the job.
  // These ask the controller themselves: a test that waits asks often, and a program that starts
  // takes as long as a step.
  std::string State(const std::string& id);  // "RUNNING"
  uint64_t Step(const std::string& id);
  // Waits for the job's end: its state, and its reason on the test's output.
  std::string WaitForEnd(const std::string& id);
  bool WaitForStep(const std::string& id, uint64_t step);
  std::vector<nlohmann::json> Steps(const std::string& id);
  // Digest of the newest checkpoint below a directory.
  std::string Digest(const std::string& directory);

  // Live trainers of a job, by rank. Each rank's processes: its supervisor is left out.
  std::vector<Found> Trainers(const std::string& job_id);  // In the order of their ranks.
  // The one process of this service that runs `program` and whose command line holds `text`; -1 if
  // there is none, or several.
  pid_t Find(const std::string& program, const std::string& text);

 private:
  struct Part {
    size_t process = 0;
    std::vector<std::string> argv;
  };

  void StartUp();
  void StartParts();
  std::string StartPart(const std::string& name);
  std::string WaitForReady(const std::string& log);
  v1::Job Asked(const std::string& id);

  const ServiceOptions options_;
  const std::string binaries_;
  const std::string directory_;
  std::string address_, metrics_url_, token_file_;
  std::unique_ptr<cli::Client> client_;  // Of `address_`; null: not asked yet.
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::string, Part> parts_;
  int runs_ = 0;
};

// Of a record of `steps`: all phases but data and checkpoint are parts of the step's seconds,
// whatever the layout.
void ExpectPhasesFitIntoTheStep(const nlohmann::json& step);

// The body of an HTTP GET; empty if that fails.
std::string HttpGet(const std::string& url);

// The path of a trainer, for a worker's flag --trainer, whose rank 1 has the fault ("device:100",
// as the trainer's own flag --fault) in the first attempt of each job
// whose name is not "undisturbed". No spec can ask for that.
std::string FaultyTrainer(const std::string& fault);

}  // namespace trainyard::testing
