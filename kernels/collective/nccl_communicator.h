// An NCCL communicator that is ordered on the device, and the watchdog over all of a rank. Start at
// nccl.h; only nccl_adapter.cc includes this.
//
// A communicator has a stream of its own, of high priority. What it is given waits there for an
// event of whoever has made the data, and records one for whoever uses the result: the host goes
// on at once. Whether it ends, and how, is for the watchdog to see, which lets go of the device by
// an abort once it has noted what failed. So whatever was read from the device is good if
// afterwards nothing has failed.

#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "kernels/collective/collective.h"
#include "kernels/collective/nccl.h"

namespace trainyard::nccl {

class Communicator;

absl::Status ToStatus(cudaError_t error);
DeviceError::Kind KindOf(const absl::Status& status);  // INTERNAL is the device.

// Until when somebody waits, by the clock that never jumps.
class Deadline {
 public:
  explicit Deadline(absl::Duration patience)
      : patience_(patience), at_(RealClock().Monotonic() + patience) {}
  absl::Duration patience() const { return patience_; }
  absl::Duration left() const { return at_ - RealClock().Monotonic(); }  // Below 0: it is over.

 private:
  absl::Duration patience_, at_;
};

// An event of the device. One that could not be made fails when it is recorded.
class DeviceEvent {
 public:
  explicit DeviceEvent(unsigned flags) {
    if (cudaEventCreateWithFlags(&event_, flags) != cudaSuccess) event_ = nullptr;
  }
  ~DeviceEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  DeviceEvent(const DeviceEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What the groups of a rank share, and the thread that watches them.
class NcclRank {
 public:
  NcclRank(const NcclOptions& options, Rendezvous& rendezvous);
  ~NcclRank();

  const NcclOptions& options() const { return options_; }
  Rendezvous& rendezvous() { return rendezvous_; }

  // Notes the first failure; the watchdog then ends what is on the device.
  void Fail(DeviceError::Kind kind, const std::string& what);
  // OK, or UNAVAILABLE what failed; INTERNAL where that was this rank's device.
  absl::Status failure() const;
  // Looks at every operation that is under way, then throws what has failed, if anything.
  void Check();

  void Watch(Communicator* communicator);
  void Unwatch(Communicator* communicator);

 private:
  void Loop();
  void LookAtAll();

  const NcclOptions options_;
  Rendezvous& rendezvous_;
  Mutex watched_mutex_;
  std::vector<Communicator*> watched_ ABSL_GUARDED_BY(watched_mutex_);
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<DeviceError> failure_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the others.
};

// Hears of operations; from any thread, under the communicator's lock.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Began() = 0;  // The device has come so far.
  // `seconds`: of the device; none where it failed.
  virtual void Ended(const Collective::Begun& operation, std::optional<double> seconds,
                     bool had_begun) = 0;
  virtual std::string Describe(const FlightRecord& operation) const = 0;
};

// Thread-safe. Its errors: UNAVAILABLE aborted or a peer was lost, DEADLINE_EXCEEDED, INTERNAL the
// device; then nothing more comes of it. Events are made for as many operations as were ever under
// way at once.
class Communicator {
 public:
  // Waits for the other ranks. `key` names it among all communicators of the job.
  struct Place {
    std::string key;
    int size = 1, rank = 0;
  };
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(NcclRank& rank, Listener& listener,
                                                              const Place& place,
                                                              const Deadline& deadline);
  // Waits briefly for the other ranks, which may still read what this one sent.
  ~Communicator();

  const std::string& key() const { return place_.key; }

  // What is enqueued has a number, from 1.
  using Number = int64_t;
  using Enqueue = absl::FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)>;
  // Calls enqueue, whose NCCL calls form one group, to run after `after`. Returns at once, except
  // that the first such calls wait for the other ranks', to connect.
  absl::StatusOr<Number> Give(const Collective::Begun& operation, const DeviceEvent& after,
                              Enqueue enqueue);
  // What `stream` is given from now on comes after an operation.
  absl::Status Await(Number number, cudaStream_t stream);
  // Returns when the device has done it.
  absl::Status WaitFor(Number number, const Deadline& deadline);
  // One byte, the same call on all ranks.
  ncclResult_t Meet(ncclComm_t comm, cudaStream_t stream) const;

  // Notes what has begun, ended, failed or lasted too long.
  void Look();
  // Ends what is on the device. The failure is noted before.
  void Abort();

 private:
  // An operation that the device has not done, as far as has been looked.
  struct Operation {
    Collective::Begun begun;
    Number number = 0;
    std::unique_ptr<DeviceEvent> begin, done;
    std::optional<Deadline> deadline;  // Once the device has come so far.
  };
  Communicator(NcclRank& rank, Listener& listener, const Place& place);

  absl::Status Open(const Deadline& deadline);
  absl::StatusOr<ncclUniqueId> Id(const Deadline& deadline);
  // Until a non-blocking call that returned `result` has taken effect. Lets go of the mutex while
  // it pauses.
  absl::Status Settle(ncclResult_t result, const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Pause(const Deadline& deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ToStatus(ncclResult_t result) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the first operation is over; false: look again later.
  absl::StatusOr<bool> LookAtFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndFirst(std::optional<double> seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the first operation.
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  NcclRank& rank_;
  Listener& listener_;
  const Place place_;
  cudaStream_t stream_ = nullptr;
  void* byte_ = nullptr;  // What Meet sends.
  Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Number given_ ABSL_GUARDED_BY(mutex_) = 0;
  // In their order, which is the stream's.
  std::deque<Operation> under_way_ ABSL_GUARDED_BY(mutex_);
  std::vector<Operation> spare_ ABSL_GUARDED_BY(mutex_);  // Their events.
};

}  // namespace trainyard::nccl
