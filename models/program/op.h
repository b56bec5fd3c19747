// An op of a recorded program: its attributes are members, everything else lies in the `Instance`.
// One file in ops/ holds an op's class and the free function that records it (ops.h).
//
// Immutable, and shared by instances; thread-safe.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "kernels/device/exec.h"
#include "models/program/communication.h"
#include "models/program/program.h"

namespace trainyard {

class Binder;
class Recorder;

// A bound instance: kernel and arguments.
using Call = std::function<void(Exec&)>;

class Op {
 public:
  virtual ~Op() = default;

  virtual absl::string_view name() const = 0;

  // The arguments' addresses put into the kernel's struct. Called once per slot, and once for the
  // first and once for later micro-batches.
  virtual Call Bind(const Binder& binder, const Instance& instance) const = 0;

  // Unless overridden: no matrix work, and every operand moved once.
  virtual Cost CostOf(const Program& program, const Instance& instance) const;

  // What it does among the ranks of group() in one replay. Whoever has a group overrides it.
  virtual std::vector<Communication> CommunicationOf(const Program& program,
                                                     const Instance& instance) const;

  // Records the instances that compute the gradients of `instance`'s inputs from those of its
  // outputs (`output_grads[i]` is invalid where output i has none), and returns the former, one per
  // input, invalid where there is none. Gradients of parameters are not returned: they are outputs
  // of the recorded instances (Recorder::Gradient). Unless overridden: a programmer error.
  virtual std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                                      std::span<const Value> output_grads) const;

  // What a GPU keeps for its calls from one to the next, beside tensors, where it keeps anything.
  // Calls of the same name share it.
  struct Kept {
    std::string name;
    size_t bytes;
  };
  virtual std::optional<Kept> KeptOnGpu(const Program& /*program*/,
                                        const Instance& /*instance*/) const {
    return std::nullopt;
  }

  // The axes along which the ranks differ among which it communicates; empty: it does not.
  virtual AxisSet group() const { return {}; }
  // All that its call does is to give the device kernels, the same ones every time: it may be part
  // of what is captured once and replayed (Graph).
  virtual bool is_capturable() const { return group().empty(); }
  // A root of the backward pass: a loss, whose gradient needs no output gradient.
  virtual bool is_loss() const { return false; }
  // A norm or an activation function: to compute it again takes little time for the memory that its
  // output would take.
  virtual bool is_cheap() const { return false; }
  // What computes again the cheap outputs of `instance`, of this op; its other outputs are kept.
  virtual Instance CheapPart(const Instance& instance) const { return instance; }
  // Changes something besides its outputs (StepState, flat buffers): never dead.
  virtual bool has_effect() const { return false; }
  // Output `output` may lie in the memory of input `input` if that is read by nobody afterwards.
  virtual bool MayAlias(int /*output*/, int /*input*/) const { return false; }
  // Input `input` holds something else afterwards: an activation that nobody reads any more, which
  // PlanMemory checks.
  virtual bool Overwrites(int /*input*/) const { return false; }
  // `instance`, of this op, made to compute no more than those outputs that are read, by index.
  // Unless overridden: as it is.
  virtual Instance Narrowed(const Instance& instance, const std::vector<bool>& /*read*/) const {
    return instance;
  }
  // Attributes, for dumps and for sharing constants: "eps=1e-05".
  virtual std::string attributes() const { return ""; }
};

// The op of `instance`, which must be a T.
template <typename T>
const T& OpAs(const Instance& instance) {
  const T* op = dynamic_cast<const T*>(instance.op.get());
  CHECK(op != nullptr) << instance.op->name() << " is of another class";
  return *op;
}

}  // namespace trainyard
