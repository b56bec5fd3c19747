// An NCCL communicator that is ordered on the device, and the watchdog over all communicators of a
// rank. Start at nccl.h; only nccl_adapter.cc includes this file.
//
// A communicator has its own stream, of high priority. An operation waits on this stream for an
// event of the stream that made the data, and records an event for the stream that uses the result.
// So the host continues at once. The watchdog sees whether and how an operation ends. If one fails,
// the watchdog notes the failure first and then frees the device by an abort. So data read from the
// device are good if nothing has failed afterwards.

#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <deque>
#include <memory>
#include <optional>
#include <set>
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

DeviceError::Kind KindOf(const absl::Status& status);  // INTERNAL means the device.

// The end of a wait, by a clock that never jumps.
class Deadline {
 public:
  explicit Deadline(absl::Duration patience)
      : patience_(patience), at_(RealClock().Monotonic() + patience) {}
  absl::Duration patience() const { return patience_; }
  // Negative: the deadline has passed.
  absl::Duration left() const { return at_ - RealClock().Monotonic(); }

 private:
  absl::Duration patience_, at_;
};

// An event of the device. If the event could not be created, recording it fails.
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

// The state that all groups of a rank share, and the thread that watches the groups.
class NcclRank {
 public:
  NcclRank(const NcclOptions& options, Rendezvous& rendezvous);
  ~NcclRank();

  const NcclOptions& options() const { return options_; }
  Rendezvous& rendezvous() { return rendezvous_; }

  // OK, or INTERNAL with CUDA's error.
  absl::Status ToStatus(cudaError_t error) const;
  // An INTERNAL error of this rank's device, with the message of the kernel that failed, if any.
  absl::Status OfDevice(const std::string& error) const;

  // Notes the first failure. The watchdog then ends the work on the device.
  void Fail(DeviceError::Kind kind, const std::string& what);
  // OK if nothing has failed, UNAVAILABLE with the failure, or INTERNAL if this rank's device
  // failed.
  absl::Status failure() const;
  // Looks at every operation under way, then throws the noted failure, if any.
  void Check();

  void Watch(Communicator* communicator);
  void Unwatch(Communicator* communicator);

 private:
  void Loop();
  void LookAtAll(bool patient);

  const NcclOptions options_;
  Rendezvous& rendezvous_;
  Mutex watched_mutex_;
  std::vector<Communicator*> watched_ ABSL_GUARDED_BY(watched_mutex_);
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<DeviceError> failure_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last, because it uses the members above.
};

// Is told about operations, from any thread, under the communicator's lock.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Began() = 0;  // The device has reached the operation.
  // `seconds` is measured on the device; nullopt if the operation failed.
  virtual void Ended(const Collective::Begun& operation, std::optional<double> seconds,
                     bool had_begun) = 0;
  virtual std::string Describe(const FlightRecord& operation) const = 0;
};

// Thread-safe. Errors: UNAVAILABLE, aborted or a peer was lost; DEADLINE_EXCEEDED; INTERNAL, the
// device. After an error the communicator must not be used. Events are created for the largest
// number of operations that were under way at once.
class Communicator {
 public:
  // Names a communicator's place. `key` is unique among all communicators of the job.
  struct Place {
    std::string key;
    int size = 1, rank = 0;
  };
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(NcclRank& rank, Listener& listener,
                                                              const Place& place,
                                                              const Deadline& deadline);
  // Waits briefly for the other ranks, because they may still read data from this one.
  ~Communicator();

  const std::string& key() const { return place_.key; }

  // The number of an operation, from 1.
  using Number = int64_t;
  using Enqueue = absl::FunctionRef<ncclResult_t(ncclComm_t, cudaStream_t)>;
  // Calls enqueue, whose NCCL calls form one group, to run after `after`. Returns at once. Calls
  // between ranks that NCCL has not connected yet wait for those of the other rank.
  absl::StatusOr<Number> Give(const Collective::Begun& operation, const DeviceEvent& after,
                              Enqueue enqueue);
  // Orders all later work on `stream` after an operation.
  absl::Status Await(Number number, cudaStream_t stream);
  // Returns when the device has done the operation.
  absl::Status WaitFor(Number number, const Deadline& deadline);
  // Sends one byte. All ranks must make the same call.
  ncclResult_t Meet(ncclComm_t comm, cudaStream_t stream) const;
  // Sends one byte along each pair, in one NCCL group. This rank must be part of all pairs.
  ncclResult_t Greet(const std::set<RankPair>& pairs, ncclComm_t comm, cudaStream_t stream) const;
  // Calls enqueue, and returns when the device has done its NCCL calls. NCCL connects ranks at
  // their first calls; this is for making such calls early. The listener is not told.
  absl::Status RunNow(Enqueue enqueue, const Deadline& deadline);

  // Notes which operations have begun, ended, failed or taken too long. `at_work`: looks only if
  // operations are under way; otherwise, only if none are. `patient`: keeps an error back for a
  // moment if none are.
  void Look(bool at_work, bool patient);
  // Ends the work on the device. The failure must have been noted before.
  void Abort();

 private:
  // An operation that was not done when it was last looked at.
  struct Operation {
    Collective::Begun begun;
    Number number = 0;
    std::unique_ptr<DeviceEvent> begin, done;
    std::optional<Deadline> deadline;  // Set once the device has reached the operation.
  };
  Communicator(NcclRank& rank, Listener& listener, const Place& place);

  absl::Status Open(const Deadline& deadline);
  absl::Status TryNow(Enqueue enqueue, const Deadline& deadline);
  // Calls enqueue between the start and the end of an NCCL group.
  absl::Status CallGroup(Enqueue enqueue, const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ncclUniqueId> Id(const Deadline& deadline);
  // Waits until a non-blocking call that returned `result` has taken effect. Releases the mutex
  // while it pauses.
  absl::Status Settle(ncclResult_t result, const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Pause(const Deadline& deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ToStatus(ncclResult_t result) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the device has come to the event.
  absl::StatusOr<bool> HasCome(const DeviceEvent& event) const;
  // Whether the first operation under way has ended. False: look again later.
  absl::StatusOr<bool> LookAtFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookLocked(bool patient = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndFirst(std::optional<double> seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails the first operation.
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  NcclRank& rank_;
  Listener& listener_;
  const Place place_;
  cudaStream_t stream_ = nullptr;
  std::byte* bytes_ = nullptr;  // Two on the device. Meet and Greet send the first one.
  Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Number given_ ABSL_GUARDED_BY(mutex_) = 0;
  // In order, which is that of the stream.
  std::deque<Operation> under_way_ ABSL_GUARDED_BY(mutex_);
  std::vector<Operation> spare_ ABSL_GUARDED_BY(mutex_);  // Kept for their events.
  // Until when an error is kept back. Set when NCCL reports one while no operation is under way.
  std::optional<Deadline> idle_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::nccl
