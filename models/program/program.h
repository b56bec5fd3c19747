// A recorded program: values, parameters, and instances of ops in the order in which they run. It
// holds no data and no addresses; passes edit it, `Executable` binds and replays it.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/parallel/context_exchange.h"
#include "models/parallel/mesh.h"
#include "models/parameter.h"
#include "models/program/value.h"

namespace trainyard {

class Op;

// The dtypes of one recording: f64, f32 and bf16 training are three recordings.
struct Precision {
  DType compute = DType::kF32;     // Activations and the weights that they meet.
  DType accumulate = DType::kF32;  // Statistics, logits, losses, gradients of parameters.
  DType master = DType::kF32;      // Master weights and optimizer state.

  static constexpr Precision F64() { return {DType::kF64, DType::kF64, DType::kF64}; }
  static constexpr Precision F32() { return {}; }
  static constexpr Precision BF16() { return {.compute = DType::kBF16}; }
};

// What an instance belongs to; a schedule's action names lists. Within one action, instances run in
// program order.
enum class List : uint8_t {
  kInit,     // Once, for a fresh model: initial parameters.
  kPrepare,  // After init or a load, before the first step: constants, compute copies.
  kForward,
  kBackwardInput,   // Gradients of activations, and of gains and biases.
  kBackwardWeight,  // Weight gradients of matrix products: may run later than the above.
  kOptimizer,
};
inline constexpr int kNumLists = 6;
const char* Name(List list);
inline bool IsBackward(List list) {
  return list == List::kBackwardInput || list == List::kBackwardWeight;
}

enum class Stream : uint8_t { kCompute, kCommunication };

// Ranks that differ along these axes alone, talking on this stream.
struct Group {
  Stream stream = Stream::kCompute;
  AxisSet axes;
  auto operator<=>(const Group&) const = default;
};

// In which replays of its list an instance takes part.
enum class When : uint8_t { kAlways, kLastMicroBatch };

struct Instance {
  std::shared_ptr<const Op> op;
  std::vector<Value> inputs = {};
  std::vector<Value> outputs = {};
  List list = List::kForward;
  int block = 0;
  Stream stream = Stream::kCompute;
  When when = When::kAlways;
  std::string label = {};  // Part of the model: "embed", "attention", "mlp", "head", "loss", ...
};

struct Cost {
  double flops = 0;  // Of matrix work only: products and attention, multiply and add counted apart.
  double bytes = 0;  // Least traffic to memory: every operand once.
};

// A contiguous range of the gradients that one collective sums. With ZeRO a rank keeps master
// weights and moments of its shard alone: an equal part of the range.
struct Bucket {
  FlatRange flat = {};       // In kGradient and kCompute; its length divides by the shards.
  FlatRange shard = {};      // This rank's part in kMaster and the moments. All of it without ZeRO.
  FlatRange own = {};        // The same part in kGradient and kCompute.
  AxisSet zero_axes = {};    // Over which it is divided; empty: not.
  AxisSet reduce_axes = {};  // Over which all its gradients are summed; zero_axes among them.
  bool tied = false;         // Summed over the first and the last stage, too.
  int first_block = 0;       // Blocks [first_block, last_block].
  int last_block = 0;
};

// A run of blocks that lie on one pipeline stage one after another. What crosses its ends comes
// from and goes to other stages; those values are invalid at the ends of the model.
struct Chunk {
  int first_block = 0;  // Blocks [first_block, last_block].
  int last_block = 0;
  Value received = {};           // Before forward.
  Value sent = {};               // After forward.
  Value received_gradient = {};  // Of `sent`; before backward.
  Value sent_gradient = {};      // Of `received`; after backward.
};

struct Program {
  Precision precision;
  Mesh mesh;
  int64_t micro_batch = 0;  // Sequences.
  int64_t sequence = 0;     // Tokens of one, on all context ranks.
  int num_blocks = 0;       // Of the model: embedding, layers, head.
  ContextExchange context_exchange = ContextExchange::kRing;

  std::vector<ValueInfo> values;
  std::vector<ParameterStorage> storages;  // This rank's.
  std::vector<Instance> instances;         // In execution order; lists interleave.
  std::vector<Chunk> chunks;               // This rank's, in the order of their blocks.

  std::map<std::string, Value> inputs;   // "tokens", "targets": written by the host.
  std::map<std::string, Value> outputs;  // "logits": stay until the slot's next forward.

  std::vector<Bucket> buckets;  // Set by LayOutParameters, as are the next two.
  int64_t flat_elements = 0;    // Of kGradient and kCompute, padding included.
  int64_t shard_elements = 0;   // Of kMaster and the moments.
  int64_t num_parameters = 0;   // Of the whole model: elements of the global tensors.
  bool training = false;        // Has gradients and an optimizer list.

  const ValueInfo& info(Value value) const;
  const ParameterStorage& storage(Value parameter_or_gradient) const;
  int64_t sequence_rows() const { return sequence / mesh.context; }  // Of one, on this rank.
  int64_t tokens() const { return micro_batch * sequence_rows(); }   // On this rank.
  int chunk_of(int block) const;

  // This rank's parameters; `flat` counts in kGradient and kCompute.
  std::vector<ParameterBox> Parameters() const;
  // What this rank updates: `flat` counts in kMaster and the moments.
  std::vector<ParameterBox> OwnedParameters() const;
  // Elements of buffer, padding included.
  int64_t elements(FlatBuffer buffer) const {
    return IsSharded(buffer) ? shard_elements : flat_elements;
  }
  // The compute copy is a buffer of its own.
  bool has_compute_copy() const;

  // The groups of ranks among which instances communicate. A group that two streams use counts
  // twice: each has a communicator of its own.
  std::set<Group> Groups() const;

  // FLOPs and bytes of this rank's instances of one list.
  Cost CostOf(List list) const;

  // One line an instance: list, block, op, label, outputs, inputs.
  std::string Dump() const;
};

}  // namespace trainyard
