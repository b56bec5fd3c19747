// A program bound to memory and kernels, ready to be replayed. Create allocates all tensor memory.
// A step allocates no tensor memory (oneDNN allocates small argument lists).
//
// One step, as the training loop drives it:
//
//   state.step = ...; executable.WriteStepState(state);
//   for each micro-batch k of n:
//     executable.WriteInput("tokens", slot, tokens);   // and "targets"
//     executable.Run(Action::kForward, {.slot = 0, .first = k == 0, .last = k == n - 1});
//     executable.Run(Action::kBackward, {.slot = 0, .first = k == 0, .last = k == n - 1});
//   executable.Run(Action::kOptimizer);                // waits for the gradients' reduction first
//   state = executable.ReadStepState();
//
// Not thread-safe.
//
// Instances of the communication stream run on one thread of the executable, in the order in which
// they were posted. Their communicators belong to that thread. Other instances wait for them at
// fixed places: Instance::awaits, the fetches of ZeRO FULL, and the start of kOptimizer, which
// waits for all. A DeviceError of a communication instance is thrown at such a wait. If collectives
// are ordered on the device, the error is thrown by the function that reads their results.
//
// A device that runs asynchronously to the host throws its errors from a later call. LastGiven()
// then returns what is known of the failed work.

#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective/collective.h"
#include "kernels/device/backend.h"
#include "kernels/device/exec.h"
#include "kernels/device/step_state.h"
#include "models/program/communication_stream.h"
#include "models/program/plan.h"
#include "models/program/program.h"
#include "models/program/timeline.h"

namespace trainyard {

// The communicator of each group. Does not own them.
using CollectiveTable = std::map<Group, Collective*>;

enum class Action : uint8_t {
  kInit,     // Sets initial parameters (reads StepState.seed), and moments to zero.
  kPrepare,  // After kInit or a load of master weights, before the first forward.
  kJoin,     // Before master weights are read (`master`); until the next kBackward.
  kForward,
  kBackward,       // Both backward lists, in program order.
  kBackwardInput,  // One backward list; the plan must be made for split lists.
  kBackwardWeight,
  kOptimizer,
};

struct MicroBatch {
  int chunk = 0;
  int slot = 0;
  // In the step: gradients are overwritten, and step constants computed. The first batch of a
  // validation computes step constants, too.
  bool first = true;
  bool last = true;         // In the step: gradients are reduced as they become complete.
  bool validation = false;  // Forward computes the loss without gradients.
  // ZeRO FULL: the first gathered block that a later action reads. It is gathered ahead; -1: none.
  // Also used by kOptimizer.
  int next_block = -1;
};

class Executable {
 public:
  // `threads` is the number of threads of a CPU rank. `collectives` must have an entry for each of
  // the program's Groups(); one rank has none. `backend` and the collectives must outlive the
  // executable. RESOURCE_EXHAUSTED: the memory cannot be allocated; the message has the planned
  // bytes.
  static absl::StatusOr<std::unique_ptr<Executable>> Create(Program program, const MemoryPlan& plan,
                                                            const Backend& backend, int threads,
                                                            const CollectiveTable& collectives);
  ~Executable();

  void Run(Action action, const MicroBatch& micro_batch = {});

  // Copy between the host's memory and a value. The sizes must match. Must not be called during
  // Run. Inputs stay until they are written again, outputs until the slot's next forward.
  void WriteInput(Value input, int slot, std::span<const int32_t> data);
  void WriteInput(Value input, int slot, std::span<const float> data);  // Rounds to its dtype.
  void WriteInput(Value input, int slot, std::span<const double> data);
  // For a program that has exactly one input of this name.
  void WriteInput(const std::string& name, int slot, std::span<const int32_t> data);
  void WriteInput(const std::string& name, int slot, std::span<const float> data);
  void ReadOutput(const std::string& name, int slot, void* data, size_t bytes) const;
  // Sets an input of reals to zero, on the device.
  void ZeroInput(Value input, int slot);
  void WriteStepState(const StepState& state);
  StepState ReadStepState() const;
  // Records the event on the compute stream, after the work launched so far.
  void Record(Event& event) const;
  // The memory of a value that this stage sends to other stages or receives (Program::chunks).
  Tensor tensor(Value value, int slot) const;
  // Copies between two such tensors of equal size, in stream order with the work of Run.
  void Copy(const Tensor& from, const Tensor& to);

  // The device memory of parameters, as one dim. Checkpoints read and write the program's
  // OwnedParameters and FrozenParameters.
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const;
  Tensor frozen(const ParameterBox& box) const;
  // The master weights of a range that counts as in kMaster. If masters are split, they are here
  // from kInit to kPrepare, and after kJoin until the next kBackward (Program::PlaceOfMaster).
  Tensor master(const FlatRange& shard) const;
  // Returns the sum of all words of such views (kernels/sums/sum_words.h). The device adds them up.
  uint32_t SumWords(std::span<const Tensor> views) const;
  // Copy between the host's memory and such a view, in stream order with the work of Run.
  // CopyToHost and the other functions that read throw a DeviceError if a collective has failed.
  void CopyToHost(void* host, const void* device, size_t bytes) const;
  void CopyToDevice(void* device, const void* host, size_t bytes);

  // Orders all later work on the compute stream after the work already posted on the communication
  // stream.
  void WaitForCommunication();
  // From now on, records the time of each instance in `timeline`, with op, label, block, chunk and
  // slot. Null: stops recording. Must not be called during Run. Waits until communication has
  // finished or failed. Read a timeline only after a further call has replaced it.
  void set_timeline(Timeline* timeline);
  Timeline* timeline() const;
  // The observer is called before and after each wait of the compute stream for the communication
  // stream. Null: no observer.
  void set_wait_observer(WaitObserver* observer);

  // The instance that was launched last on the stream. Null: none so far, or none any longer.
  const Instance* LastGiven(Stream stream) const;
  // A text for people, about a device that has failed: this rank, the instance launched last (the
  // failed one may be earlier), and the communication that is running or has failed.
  std::string LastGiven() const;

  const Program& program() const;
  const MemoryPlan& plan() const;
  const Backend& backend() const;

 private:
  struct State;
  explicit Executable(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainyard
