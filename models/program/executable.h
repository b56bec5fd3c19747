// A program bound to memory and kernels, replayed. All tensor memory is allocated by Create; a
// step allocates none (oneDNN makes small argument lists of its own).
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
// Not thread-safe. Instances of the communication stream run on one thread of the executable's own,
// in the order in which they were posted; their communicators belong to that thread. Other
// instances wait for them where they say so (Instance::awaits, ZeRO FULL's fetches, and all of
// kOptimizer at its start): that is where a DeviceError of theirs is thrown, or, where collectives
// are ordered on the device, by whatever reads what came of them. A device that works beside the
// host has its errors thrown by a later call: LastGiven() is what can be said then.

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

// The communicator of each group. Not owned.
using CollectiveTable = std::map<Group, Collective*>;

enum class Action : uint8_t {
  kInit,     // Initial parameters (reads StepState.seed), moments to zero.
  kPrepare,  // After kInit or after the master weights were loaded; before the first forward.
  kForward,
  kBackward,       // Both backward lists, in program order.
  kBackwardInput,  // Or one after the other, in programs planned for that.
  kBackwardWeight,
  kOptimizer,
};

struct MicroBatch {
  int chunk = 0;
  int slot = 0;
  bool first = true;        // Of the step: gradients are overwritten.
  bool last = true;         // Of the step: gradients are reduced as they become complete.
  bool validation = false;  // Forward alone: the loss without gradients.
  // ZeRO FULL: the first block whose weights a later action reads, to be gathered ahead; -1: none.
  // Of kOptimizer, too.
  int next_block = -1;
};

class Executable {
 public:
  // `threads`: of a CPU rank. RESOURCE_EXHAUSTED, with the planned bytes, if the memory is not
  // there. `backend` and the collectives must outlive the executable; `collectives` has an entry
  // for each of the program's Groups() (none for one rank).
  static absl::StatusOr<std::unique_ptr<Executable>> Create(Program program, const MemoryPlan& plan,
                                                            const Backend& backend, int threads,
                                                            const CollectiveTable& collectives);
  ~Executable();

  void Run(Action action, const MicroBatch& micro_batch = {});

  // Host memory to and from a value; the sizes must match. Outside of Run. Inputs stay until they
  // are written again, outputs until the slot's next forward.
  void WriteInput(Value input, int slot, std::span<const int32_t> data);
  void WriteInput(Value input, int slot, std::span<const float> data);  // Rounded to its dtype.
  // Of a program with one such input.
  void WriteInput(const std::string& name, int slot, std::span<const int32_t> data);
  void WriteInput(const std::string& name, int slot, std::span<const float> data);
  void ReadOutput(const std::string& name, int slot, void* data, size_t bytes) const;
  void WriteStepState(const StepState& state);
  StepState ReadStepState() const;
  // After what the compute stream has been given.
  void Record(Event& event) const;
  // Memory of a value: what other stages send and are sent (Program::chunks).
  Tensor tensor(Value value, int slot) const;
  // From one such memory to another of equal size, in order with what Run was given.
  void Copy(const Tensor& from, const Tensor& to);

  // Device memory of parameters; one dim. What checkpoints read and write are the program's
  // OwnedParameters and FrozenParameters.
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const;
  Tensor frozen(const ParameterBox& box) const;
  // Between the host's memory and that of such a view, in order with what Run was given.
  // Whatever reads throws a DeviceError where a collective has failed until then.
  void CopyToHost(void* host, const void* device, size_t bytes) const;
  void CopyToDevice(void* device, const void* host, size_t bytes);

  // What is given to the device from now on comes after all of the communication stream.
  void WaitForCommunication();
  // From now on instances are noted there, by op, label, block, chunk and slot; null: no longer.
  // Outside of Run; waits until communication is done or has failed. The timeline may be read after
  // another such call.
  void set_timeline(Timeline* timeline);
  Timeline* timeline() const;
  // Told whenever the compute stream stands still for the communication stream; null: nobody.
  void set_wait_observer(WaitObserver* observer);

  // For people, of a device that failed: this rank, what the device was given last, which may be
  // later than what failed, and what communication is or failed at.
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
