// An op of a recorded program. The members of an op are its attributes; everything else is in the
// `Instance`. A file in ops/ holds the class of an op and the free function that records it
// (ops.h).
//
// Ops are immutable, shared by instances, and thread-safe.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/device/exec.h"
#include "models/program/communication.h"
#include "models/program/program.h"

namespace trainyard {

class Binder;
class Recorder;

// A bound instance: a kernel with its arguments.
using Call = std::function<void(Exec&)>;

class Op {
 public:
  virtual ~Op() = default;

  virtual absl::string_view name() const = 0;

  // How many operands an instance has (NamedOp). Nullopt: any number.
  struct OperandCounts {
    size_t inputs = 0;
    size_t outputs = 0;
    size_t optional_inputs = 0;  // So many of the last ones may be missing.
    size_t optional_outputs = 0;
  };
  virtual std::optional<OperandCounts> operand_counts() const { return std::nullopt; }

  // Puts the addresses of the arguments into the kernel's struct. Called for each slot, and for
  // backward once for the first and once for later micro-batches.
  virtual Call Bind(const Binder& binder, const Instance& instance) const = 0;

  // The default: no matrix work, and every operand is moved once.
  virtual Cost CostOf(const Program& program, const Instance& instance) const;

  // The mask of the query-key pairs that the FLOPs of CostOf count. Nullopt: they count no pairs.
  virtual std::optional<AttentionMask> PairsCounted() const { return std::nullopt; }

  // The communication of one replay among the ranks of group(). Every op that has a group overrides
  // this function.
  virtual std::vector<Communication> CommunicationOf(const Program& program,
                                                     const Instance& instance) const;

  // Records the instances that compute the gradients of `instance`'s inputs from the gradients of
  // its outputs. output_grads[i] is invalid if output i has no gradient. Returns one gradient for
  // each input, invalid if the input has none. Gradients of parameters are not returned: they are
  // outputs of the recorded instances (Recorder::Gradient). The default CHECK-fails.
  virtual std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                                      std::span<const Value> output_grads) const;

  // Memory that an op's calls on a GPU keep from one call to the next, besides tensors. Calls of
  // the same name share the memory. Nullopt: none.
  struct Kept {
    std::string name;
    size_t bytes;
  };
  virtual std::optional<Kept> KeptOnGpu(const Program& /*program*/,
                                        const Instance& /*instance*/) const {
    return std::nullopt;
  }

  // The op communicates among the ranks that differ along these axes. Empty: it does not.
  virtual AxisSet group() const { return {}; }
  // Whether the op's call only launches kernels, and the same kernels every time. Such calls may be
  // captured once and replayed as a graph (Graph).
  virtual bool is_capturable() const { return group().empty(); }
  // Whether the op is a root of the backward pass: a loss, whose gradient needs no output gradient.
  virtual bool is_loss() const { return false; }
  // Whether computing the op again takes little time for the memory that its output takes: norms
  // and activation functions.
  virtual bool is_cheap() const { return false; }
  // Returns the instance that computes the cheap outputs of `instance` again. The other outputs are
  // kept.
  virtual Instance CheapPart(const Instance& instance) const { return instance; }
  // Whether the op changes something besides its outputs (StepState, flat buffers). Such an
  // instance is never dead.
  virtual bool has_effect() const { return false; }
  // Whether output `output` may use the memory of input `input` if no later instance reads the
  // input.
  virtual bool MayAlias(int /*output*/, int /*input*/) const { return false; }
  // Whether the op leaves something else in input `input`. The input must be an activation that no
  // later instance reads; PlanMemory checks this.
  virtual bool Overwrites(int /*input*/) const { return false; }
  // Returns an instance that computes only those outputs of `instance` whose element in `read` is
  // true. The default returns `instance` itself.
  virtual Instance Narrowed(const Instance& instance, const std::vector<bool>& /*read*/) const {
    return instance;
  }
  // The attributes as text, for dumps and as the key of shared constants: "eps=1e-05".
  virtual std::string attributes() const { return ""; }
};

// The base of an op that names its operands: Self has enums Input and Output, whose values are the
// indices of Instance::inputs and outputs, and which end with kInputs and kOutputs. If the last
// operands may be missing, Self has kOptionalInputs or kOptionalOutputs.
template <typename Self>
class NamedOp : public Op {
 public:
  std::optional<OperandCounts> operand_counts() const override {
    OperandCounts counts{.inputs = Self::kInputs, .outputs = Self::kOutputs};
    if constexpr (requires { Self::kOptionalInputs; }) {
      counts.optional_inputs = Self::kOptionalInputs;
    }
    if constexpr (requires { Self::kOptionalOutputs; }) {
      counts.optional_outputs = Self::kOptionalOutputs;
    }
    return counts;
  }
};

// CHECKs that the instance has as many operands as its op names.
void CheckOperands(const Instance& instance);

// Returns the op of `instance`. CHECKs that the op is a T.
template <typename T>
const T& OpAs(const Instance& instance) {
  const T* op = dynamic_cast<const T*>(instance.op.get());
  CHECK(op != nullptr) << instance.op->name() << " is of another class";
  return *op;
}

}  // namespace trainyard
