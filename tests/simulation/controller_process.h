// The controller's process: the product's coordinator, job book and scheduler over a pumped store,
// behind streams as the service keeps them (controller/service/worker_service.cc).

#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/book/believed_time.h"
#include "controller/book/job_book.h"
#include "controller/metrics.h"
#include "controller/workers/coordinator.h"
#include "tests/controller/store/faulty_disk.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"
#include "tests/simulation/pumped_store.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::simulation {

class ControllerEnd;
using UpPipe = Pipe<v1::ConnectRequest>;
using DownPipe = Pipe<v1::ConnectResponse>;

// A stream between a worker and the controller.
struct Stream {
  std::shared_ptr<UpPipe> up;
  std::shared_ptr<DownPipe> down;
};

// What the checks look at; all are called while the controller acts.
struct ControllerWatch {
  std::function<void(const v1::ConnectRequest&)> acknowledged;  // About to be told so.
  std::function<void(const v1::ConnectRequest&)> refused;       // Counted, and will not be stored.
  std::function<void(const v1::ConnectRequest&)> heard;
  std::function<void()> ticked;
  std::function<void()> started;
};

class ControllerProcess {
 public:
  ControllerProcess(EventQueue& queue, std::string directory, ControllerWatch watch);
  ~ControllerProcess();

  void Start();
  bool up() const { return process_ != nullptr; }
  Process* process() { return process_.get(); }
  // The process dies, with its disk at its next write or at once; comes back after `away`.
  enum class Death { kKilled, kPowerCut };
  void Crash(Death death, absl::Duration away);
  // The disk fails at its nth write from now, and the process dies of it.
  void DieAtWrite(Death death, int call, absl::Duration away);
  void FillDisk();
  void FreeDisk();

  // A worker opens a stream. Null: nobody listens.
  std::shared_ptr<UpPipe> Accept(Way& way, std::shared_ptr<DownPipe> down);

  controller::JobBook& book() { return *book_; }
  controller::Coordinator& coordinator() { return *coordinator_; }
  PumpedStore& store() { return *store_; }
  absl::Duration started() const { return started_; }

 private:
  friend class ControllerEnd;
  void Bury();
  void TickEvery();
  double NumRefused();
  absl::Status Open();

  EventQueue& queue_;
  const std::string directory_;
  const ControllerWatch watch_;
  controller::FaultyDisk disk_{controller::Fault::kNone, 0};
  bool full_ = false;    // The disk, as is the next.
  bool doomed_ = false;  // It is about to die, or has died.
  Death death_ = Death::kKilled;
  absl::Duration away_;
  absl::Duration started_ = -absl::InfiniteDuration();

  // Of one life.
  std::unique_ptr<Process> process_;
  std::unique_ptr<controller::BelievedTime> time_;
  std::unique_ptr<PumpedStore> store_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<controller::ControllerMetrics> metrics_;
  std::unique_ptr<controller::JobBook> book_;
  std::unique_ptr<controller::Coordinator> coordinator_;
  std::vector<std::shared_ptr<ControllerEnd>> ends_;  // Of this life's streams.
};

}  // namespace trainyard::simulation
