// Communication that takes as long as it may: a rank's world whose operations are held up at
// random, by a seed. What a layout computes must not change. It does where a thread reads or writes
// memory without having waited for the operation that writes or reads it, too.

#pragma once

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "kernels/collective/world.h"
#include "models/program/communication_stream.h"

namespace trainyard::testing {

// Wraps the world of a rank; must be made on the rank's compute thread, and be told when this
// thread waits for communication (Executable::set_wait_observer).
//
// * An operation of the communication stream begins at once, or a moment later, or only when the
//   compute thread waits for the stream. The last ends after kPatience at the latest, since the
//   compute thread may wait for a peer that waits for this operation.
// * From before this delay until its end, what a gather will write is no number.
// * So is memory for which a message is expected, from PostReceive on.
// * The compute thread, too, is held up for moments, and with it its messages.
class HeldUpWorld final : public CollectiveWorld, public WaitObserver {
 public:
  static constexpr auto kPatience = absl::Milliseconds(3);

  // `world` must outlive this one.
  HeldUpWorld(CollectiveWorld& world, uint64_t seed);

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  void Abort() override { world_.Abort(); }

  void BeginWait() override { SetWaiting(true); }
  void EndWait() override { SetWaiting(false); }

 private:
  class Group;

  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override;
  void SetWaiting(bool waiting);
  bool OnComputeThread() const { return std::this_thread::get_id() == compute_thread_; }
  // Holds up the calling thread: the compute thread or the communication stream's.
  void HoldUp();
  void HoldUpUntilAwaited();

  CollectiveWorld& world_;
  const std::thread::id compute_thread_ = std::this_thread::get_id();
  std::mt19937_64 compute_random_, communication_random_;  // Each used by its thread alone.
  Mutex mutex_;
  CondVar changed_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // The compute thread, for the stream.
};

}  // namespace trainyard::testing
