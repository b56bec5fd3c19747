#include "kernels/collective/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard::nccl {
namespace {

// The interval between the watchdog's looks.
constexpr absl::Duration kInterval = absl::Milliseconds(5);

// How long leaving a group waits for the peers.
constexpr absl::Duration kFarewell = absl::Seconds(10);

// The most operations of a communicator that the device has not done. If a stream has about a
// thousand of them, CUDA makes the calling thread wait, and that thread would hold the lock that
// the watchdog needs. Less than the flight recorder's capacity.
constexpr size_t kMostUnderWay = 128;

// The pause between two looks at an awaited call.
constexpr std::chrono::microseconds kPause(20);

// How long the watchdog keeps back an error of a communicator without operations. The end of a peer
// shows within a moment at all groups that it was in, and one with an operation can name it.
constexpr absl::Duration kReticence = absl::Milliseconds(50);

// How long a wait for a peer's key lasts before it checks whether something has failed.
constexpr absl::Duration kGlance = absl::Milliseconds(200);

absl::Status TooLate(const Deadline& deadline) {
  return absl::DeadlineExceededError(
      absl::StrCat("no word from all ranks within ", absl::FormatDuration(deadline.patience())));
}

}  // namespace

DeviceError::Kind KindOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ? DeviceError::Kind::kDevice
                                                      : DeviceError::Kind::kPeerLost;
}

NcclRank::NcclRank(const NcclOptions& options, Rendezvous& rendezvous)
    : options_(options), rendezvous_(rendezvous), thread_([this] { Loop(); }) {}

NcclRank::~NcclRank() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::Status NcclRank::ToStatus(cudaError_t error) const {
  if (error == cudaSuccess) return absl::OkStatus();
  return OfDevice(absl::StrCat("CUDA: ", cudaGetErrorString(error)));
}

absl::Status NcclRank::OfDevice(const std::string& error) const {
  return absl::InternalError(options_.with_failure == nullptr ? error
                                                              : options_.with_failure(error));
}

void NcclRank::Fail(DeviceError::Kind kind, const std::string& what) {
  const MutexLock lock(mutex_);
  if (!failure_) failure_.emplace(kind, what);
  changed_.NotifyAll();
}

absl::Status NcclRank::failure() const {
  const MutexLock lock(mutex_);
  if (!failure_) return absl::OkStatus();
  return failure_->kind == DeviceError::Kind::kDevice ? absl::InternalError(failure_->what())
                                                      : absl::UnavailableError(failure_->what());
}

void NcclRank::Check() {
  LookAtAll(/*patient=*/false);
  const MutexLock lock(mutex_);
  if (failure_) throw *failure_;
}

void NcclRank::Watch(Communicator* communicator) {
  const MutexLock lock(watched_mutex_);
  watched_.push_back(communicator);
}

void NcclRank::Unwatch(Communicator* communicator) {
  const MutexLock lock(watched_mutex_);
  std::erase(watched_, communicator);
}

void NcclRank::LookAtAll(bool patient) {
  const MutexLock lock(watched_mutex_);
  for (const bool at_work : {true, false}) {
    for (Communicator* communicator : watched_) communicator->Look(at_work, patient);
  }
}

void NcclRank::Loop() {
  cudaSetDevice(options_.device);  // The device of this thread.
  MutexLock lock(mutex_);
  while (!ends_) {
    const absl::Duration next = RealClock().Monotonic() + kInterval;
    while (!ends_ && !failure_ && changed_.WaitUntil(mutex_, next)) continue;
    lock.Unlock();
    if (failure().ok()) LookAtAll(/*patient=*/true);
    if (!failure().ok()) {
      const MutexLock watched(watched_mutex_);
      for (Communicator* communicator : watched_) communicator->Abort();
    }
    lock.Lock();
    if (!failure_) continue;
    const absl::Duration again = RealClock().Monotonic() + kInterval;
    while (!ends_ && changed_.WaitUntil(mutex_, again)) continue;
  }
}

Communicator::Communicator(NcclRank& rank, Listener& listener, const Place& place)
    : rank_(rank), listener_(listener), place_(place) {
  rank_.Watch(this);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(NcclRank& rank,
                                                                   Listener& listener,
                                                                   const Place& place,
                                                                   const Deadline& deadline) {
  std::unique_ptr<Communicator> made(new Communicator(rank, listener, place));
  const absl::Status status = made->Open(deadline);
  if (!status.ok()) {
    rank.Fail(KindOf(status), absl::StrCat(place.key, ": ", status.message()));
    made->Abort();
    return status;
  }
  return made;
}

absl::Status Communicator::Open(const Deadline& deadline) {
  int least = 0, greatest = 0;
  RETURN_IF_ERROR(rank_.ToStatus(cudaSetDevice(rank_.options().device)));
  RETURN_IF_ERROR(rank_.ToStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  RETURN_IF_ERROR(
      rank_.ToStatus(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest)));
  void* bytes = nullptr;
  RETURN_IF_ERROR(rank_.ToStatus(cudaMalloc(&bytes, 2)));
  bytes_ = static_cast<std::byte*>(bytes);
  ASSIGN_OR_RETURN(const ncclUniqueId id, Id(deadline));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(rank_.failure());  // The watchdog may not have aborted all groups yet.
  const ncclResult_t begun = ncclCommInitRankConfig(&comm_, place_.size, id, place_.rank, &config);
  return Settle(begun, deadline);
}

// The first rank creates the id, and the others read it.
absl::StatusOr<ncclUniqueId> Communicator::Id(const Deadline& deadline) {
  ncclUniqueId id;
  if (place_.rank == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    {
      const MutexLock lock(mutex_);
      RETURN_IF_ERROR(ToStatus(made));
    }
    RETURN_IF_ERROR(
        rank_.rendezvous().Set(place_.key, std::string(id.internal, sizeof(id.internal))));
    return id;
  }
  for (;;) {
    const absl::Duration left = deadline.left();
    const auto bytes = rank_.rendezvous().Get(place_.key, std::min(left, kGlance));
    if (bytes.ok()) {
      if (bytes->size() != sizeof(id.internal)) {
        return absl::InvalidArgumentError(absl::StrCat(place_.key, " holds ", bytes->size(),
                                                       " bytes, wanted ", sizeof(id.internal)));
      }
      std::memcpy(id.internal, bytes->data(), bytes->size());
      return id;
    }
    RETURN_IF_ERROR(rank_.failure());
    if (!absl::IsDeadlineExceeded(bytes.status()) || left <= kGlance) return bytes.status();
  }
}

Communicator::~Communicator() {
  const Deadline deadline(std::min(kFarewell, rank_.options().timeout));
  const Number last = [this] {
    const MutexLock lock(mutex_);
    return given_;
  }();
  bool sound = WaitFor(last, deadline).ok();
  rank_.Unwatch(this);
  {
    MutexLock lock(mutex_);
    if (comm_ != nullptr && sound) {
      sound = Settle(ncclCommFinalize(comm_), deadline).ok();
      if (comm_ != nullptr && sound) ncclCommDestroy(std::exchange(comm_, nullptr));
    }
  }
  if (!sound) rank_.Fail(DeviceError::Kind::kPeerLost, absl::StrCat(place_.key, ": was left"));
  Abort();
  if (bytes_ != nullptr) cudaFree(bytes_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::StatusOr<Communicator::Number> Communicator::Give(const Collective::Begun& operation,
                                                        const DeviceEvent& after, Enqueue enqueue) {
  const Deadline deadline(rank_.options().timeout);
  RETURN_IF_ERROR(rank_.ToStatus(cudaSetDevice(rank_.options().device)));  // This thread's device.
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(rank_.failure());
  if (comm_ == nullptr) return absl::UnavailableError("failed before");
  for (LookLocked(); under_way_.size() >= kMostUnderWay; LookLocked()) {
    RETURN_IF_ERROR(Pause(Deadline(absl::InfiniteDuration())));  // The watchdog has a deadline.
  }
  Operation next;
  if (spare_.empty()) {
    next.begin = std::make_unique<DeviceEvent>(cudaEventDefault);
    next.done = std::make_unique<DeviceEvent>(cudaEventDefault);
  } else {
    next = std::move(spare_.back());
    spare_.pop_back();
  }
  next.begun = operation;
  next.number = given_ + 1;
  next.deadline.reset();
  RETURN_IF_ERROR(rank_.ToStatus(cudaStreamWaitEvent(stream_, after.get())));
  RETURN_IF_ERROR(rank_.ToStatus(cudaEventRecord(next.begin->get(), stream_)));
  RETURN_IF_ERROR(CallGroup(enqueue, deadline));
  RETURN_IF_ERROR(rank_.ToStatus(cudaEventRecord(next.done->get(), stream_)));
  under_way_.push_back(std::move(next));
  return ++given_;
}

absl::Status Communicator::CallGroup(Enqueue enqueue, const Deadline& deadline) {
  RETURN_IF_ERROR(ToStatus(ncclGroupStart()));
  const ncclResult_t enqueued = enqueue(comm_, stream_);
  const ncclResult_t ended = ncclGroupEnd();
  RETURN_IF_ERROR(ToStatus(enqueued));
  return Settle(ended, deadline);
}

absl::Status Communicator::RunNow(Enqueue enqueue, const Deadline& deadline) {
  const absl::Status status = TryNow(enqueue, deadline);
  if (status.ok()) return status;
  rank_.Fail(KindOf(status), absl::StrCat(place_.key, ": ", status.message()));
  Abort();
  return status;
}

absl::Status Communicator::TryNow(Enqueue enqueue, const Deadline& deadline) {
  RETURN_IF_ERROR(rank_.ToStatus(cudaSetDevice(rank_.options().device)));
  const DeviceEvent done(cudaEventDisableTiming);
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(rank_.failure());
  if (comm_ == nullptr) return absl::UnavailableError("failed before");
  RETURN_IF_ERROR(CallGroup(enqueue, deadline));
  RETURN_IF_ERROR(rank_.ToStatus(cudaEventRecord(done.get(), stream_)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_come, HasCome(done));
    if (has_come) return rank_.failure();  // An abort, too, lets the device come to the event.
    RETURN_IF_ERROR(Pause(deadline));
  }
}

absl::Status Communicator::Await(Number number, cudaStream_t stream) {
  const MutexLock lock(mutex_);
  RETURN_IF_ERROR(rank_.failure());
  for (const Operation& operation : under_way_) {
    if (operation.number != number) continue;
    return rank_.ToStatus(cudaStreamWaitEvent(stream, operation.done->get()));
  }
  return absl::OkStatus();  // The operation is done.
}

absl::Status Communicator::WaitFor(Number number, const Deadline& deadline) {
  MutexLock lock(mutex_);
  for (;;) {
    LookLocked();
    RETURN_IF_ERROR(rank_.failure());
    if (comm_ == nullptr) return absl::UnavailableError("failed before");
    if (under_way_.empty() || under_way_.front().number > number) return absl::OkStatus();
    RETURN_IF_ERROR(Pause(deadline));
  }
}

ncclResult_t Communicator::Meet(ncclComm_t comm, cudaStream_t stream) const {
  return ncclAllReduce(bytes_, bytes_, 1, ncclUint8, ncclMax, comm, stream);
}

ncclResult_t Communicator::Greet(const std::set<RankPair>& pairs, ncclComm_t comm,
                                 cudaStream_t stream) const {
  ncclResult_t result = ncclSuccess;
  for (const auto& [from, to] : pairs) {
    result = from == place_.rank ? ncclSend(bytes_, 1, ncclUint8, to, comm, stream)
                                 : ncclRecv(bytes_ + 1, 1, ncclUint8, from, comm, stream);
    if (result != ncclSuccess) break;
  }
  return result;
}

void Communicator::Look(bool at_work, bool patient) {
  const MutexLock lock(mutex_);
  if (at_work != under_way_.empty()) LookLocked(patient);
}

void Communicator::LookLocked(bool patient) {
  if (comm_ == nullptr) return;
  ncclResult_t result = ncclSuccess;
  absl::Status status = ToStatus(ncclCommGetAsyncError(comm_, &result));
  if (status.ok()) status = ToStatus(result);
  if (!status.ok() && under_way_.empty() && patient) {
    if (!idle_error_) idle_error_.emplace(kReticence);
    if (idle_error_->left() > absl::ZeroDuration()) return;
  }
  while (status.ok() && !under_way_.empty()) {
    const absl::StatusOr<bool> over = LookAtFirst();
    status = over.status();
    if (status.ok() && !*over) return;
  }
  if (!status.ok()) Fail(status);
}

absl::StatusOr<bool> Communicator::HasCome(const DeviceEvent& event) const {
  const cudaError_t state = cudaEventQuery(event.get());
  if (state == cudaErrorNotReady) return false;
  RETURN_IF_ERROR(rank_.ToStatus(state));
  return true;
}

absl::StatusOr<bool> Communicator::LookAtFirst() {
  Operation& first = under_way_.front();
  ASSIGN_OR_RETURN(const bool done, HasCome(*first.done));
  if (done) {
    float milliseconds = 0;
    RETURN_IF_ERROR(
        rank_.ToStatus(cudaEventElapsedTime(&milliseconds, first.begin->get(), first.done->get())));
    EndFirst(1e-3 * double(milliseconds));
    return true;
  }
  if (!first.deadline) {
    ASSIGN_OR_RETURN(const bool begun, HasCome(*first.begin));
    if (!begun) return false;
    first.deadline.emplace(rank_.options().timeout);
    listener_.Began();
  }
  if (first.deadline->left() < absl::ZeroDuration()) return TooLate(*first.deadline);
  return false;
}

void Communicator::EndFirst(std::optional<double> seconds) {
  Operation first = std::move(under_way_.front());
  under_way_.pop_front();
  listener_.Ended(first.begun, seconds, first.deadline.has_value());
  spare_.push_back(std::move(first));
}

void Communicator::Fail(const absl::Status& status) {
  const std::string what =
      under_way_.empty() ? place_.key : listener_.Describe(under_way_.front().begun.record);
  rank_.Fail(KindOf(status), absl::StrCat(what, ": ", status.message()));
}

void Communicator::Abort() {
  const MutexLock lock(mutex_);
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
  while (!under_way_.empty()) EndFirst(std::nullopt);
}

absl::Status Communicator::ToStatus(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const std::string what =
      absl::StrCat("NCCL: ", ncclGetErrorString(result), ": ", ncclGetLastError(comm_));
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  return peer ? absl::UnavailableError(what) : rank_.OfDevice(what);
}

absl::Status Communicator::Settle(ncclResult_t result, const Deadline& deadline) {
  while (result == ncclInProgress) {
    RETURN_IF_ERROR(Pause(deadline));
    RETURN_IF_ERROR(ToStatus(ncclCommGetAsyncError(comm_, &result)));
  }
  return ToStatus(result);
}

absl::Status Communicator::Pause(const Deadline& deadline) {
  mutex_.Unlock();
  std::this_thread::sleep_for(kPause);
  mutex_.Lock();
  RETURN_IF_ERROR(rank_.failure());
  if (comm_ == nullptr) return absl::UnavailableError("failed before");
  if (deadline.left() < absl::ZeroDuration()) return TooLate(deadline);
  return absl::OkStatus();
}

}  // namespace trainyard::nccl
