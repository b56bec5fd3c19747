#include "tests/simulation/simulation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/client.h"
#include "tests/simulation/faults.h"

namespace trainyard::simulation {
namespace {

// After everything has healed. A detached worker alone may take ten minutes of it.
constexpr absl::Duration kMostTime = absl::Minutes(40);
constexpr absl::Duration kToTellAll = absl::Seconds(60);

// In memory where there is such a file system: nothing here has to survive this process.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* top = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path_ = absl::StrCat(top, "/trainyard-simulation-XXXXXX");
    CHECK(::mkdtemp(path_.data()) != nullptr) << path_;
    for (const char* name : {"share", "nowhere", "store"}) {
      CHECK(MakeDirectories(absl::StrCat(path_, "/", name)).ok());
    }
  }
  ~ScratchDirectory() { (void)RemoveTree(path_); }
  std::string of(const char* name) const { return absl::StrCat(path_, "/", name); }

 private:
  std::string path_;
};

// Nobody reads the product's log while it lives.
class Silence {
 public:
  Silence() : stderr_(::dup(STDERR_FILENO)) {
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(null, STDERR_FILENO);
    ::close(null);
  }
  ~Silence() {
    ::dup2(stderr_, STDERR_FILENO);
    ::close(stderr_);
  }

 private:
  const int stderr_;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : queue_(seed),
        controller_(queue_, scratch_.of("store"), Watch()),
        checks_(queue_, machines_, scratch_.of("share")),
        client_(queue_, controller_),
        faults_(queue_, controller_, machines_, checks_) {}
  ~Simulation() {
    for (const auto& [key, attempt] : attempts_) attempt->Forget();
  }

  Outcome Run() {
    DrawJobs();
    controller_.Start();
    DrawMachines();
    client_.Start(plans_);
    faults_.Schedule();
    while (!ended_ && queue_.failure().empty()) {
      if (queue_.now() > faults_.healed() + kMostTime) NameWhatIsStuck();
      queue_.RunOne(absl::InfiniteDuration());
    }
    const absl::Duration last = queue_.now() + kToTellAll;
    while (queue_.failure().empty() && queue_.RunOne(last)) continue;
    if (queue_.failure().empty()) checks_.AtEnd(controller_, client_.jobs());
    return {queue_.failure(), queue_.hash(), queue_.num_events(), queue_.now(), queue_.tail()};
  }

 private:
  ControllerWatch Watch() {
    return {.acknowledged =
                [this](const v1::ConnectRequest& request) {
                  checks_.OnAcknowledged(controller_.store(), request);
                },
            .refused = [this](const v1::ConnectRequest& request) { checks_.OnRefused(request); },
            .heard = [this](const v1::ConnectRequest& request) { checks_.OnHeard(request); },
            .ticked =
                [this] {
                  checks_.OnTick(controller_);
                  LookForTheEnd();
                },
            .started = [this] { checks_.OnStarted(); }};
  }

  void DrawJobs() {
    const uint32_t jobs = 1 + uint32_t(queue_.Below(4));
    for (uint32_t i = 0; i < jobs; ++i) {
      JobPlan plan;
      plan.index = i;
      plan.ranks = 1 + uint32_t(queue_.Below(3));
      plan.steps = 10 + queue_.Below(60);
      plan.save_every = 2 + queue_.Below(9);
      plan.keep = 1 + int64_t(queue_.Below(3));
      plan.saves = queue_.Chance(0.9);
      plan.step_time = queue_.Between(absl::Milliseconds(200), absl::Seconds(1));
      plan.directory = absl::StrCat("job-", i);
      plans_.push_back(plan);
    }
  }

  // So many that any one of them may go: a job has at most three ranks.
  void DrawMachines() {
    const uint64_t machines = 3 + queue_.Below(3);
    for (uint64_t i = 0; i < machines; ++i) {
      machines_.push_back(
          std::make_unique<Machine>(machine_world_, absl::StrCat("machine-", i), 2));
      queue_.After(queue_.Between({}, absl::Seconds(2)),
                   [machine = machines_.back().get()] { machine->StartDaemon(); });
    }
  }

  std::shared_ptr<Attempt> AttemptOf(const StartOrder& order) {
    std::shared_ptr<Attempt>& attempt = attempts_[{order.job_id, order.epoch}];
    if (attempt == nullptr) {
      uint32_t index = 0;
      CHECK(absl::SimpleAtoi(order.job_config, &index)) << order.job_config;
      attempt = std::make_shared<Attempt>(attempt_world_, plans_[index], order);
    }
    return attempt;
  }

  void LookForTheEnd() {
    if (queue_.now() < faults_.healed() || !client_.all_acknowledged()) return;
    for (const auto& [id, plan] : client_.jobs()) {
      if (controller_.book().Published(id) != nullptr) return;
    }
    ended_ = true;
  }

  void NameWhatIsStuck() {
    std::string stuck = "not ended:";
    if (!controller_.up()) return queue_.Fail("the controller is not up");
    for (const controller::Snapshot& job : controller_.book().Live()) {
      absl::StrAppend(&stuck, " job ", job->id, " ", Name(job->state), " at epoch ", job->epoch,
                      " (", job->state_reason, ")");
    }
    queue_.Fail(stuck);
  }

  const ScratchDirectory scratch_;
  EventQueue queue_;
  ControllerProcess controller_;
  Machines machines_;
  Checks checks_;
  Client client_;
  Faults faults_;
  std::vector<JobPlan> plans_;
  std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Attempt>> attempts_;
  const AttemptWorld attempt_world_ = {
      queue_, scratch_.of("share"), scratch_.of("nowhere"),
      [this](const std::string& id, const JobPlan& plan, int64_t epoch, int64_t step) {
        checks_.OnCommitted(id, plan, epoch, step);
      }};
  const MachineWorld machine_world_ = {
      queue_, controller_, [this](const StartOrder& order) { return AttemptOf(order); }};
  bool ended_ = false;
};

}  // namespace

Outcome RunSeed(uint64_t seed) {
  const Silence silence;
  return Simulation(seed).Run();
}

std::string Explain(uint64_t seed, const Outcome& outcome) {
  std::string text =
      absl::StrCat("seed ", seed, ": ", outcome.failure, "\nagain: build/tests/simulate --first ",
                   seed, " --seeds 1\nits last events:\n");
  for (const std::string& line : outcome.tail) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace trainyard::simulation
