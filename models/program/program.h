// A recorded program: values, parameters, and instances of ops in the order in which they run. It
// holds no data and no addresses; passes edit it, `Executable` binds and replays it.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

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

enum class Stream : uint8_t { kCompute, kCommunication };

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

struct Program {
  Precision precision;
  Mesh mesh;
  int64_t micro_batch = 0;  // Sequences.
  int64_t sequence = 0;     // Tokens of one.
  int num_blocks = 0;       // Embedding, layers, head.

  std::vector<ValueInfo> values;
  std::vector<ParameterStorage> storages;  // In declaration order.
  std::vector<Instance> instances;         // In execution order; lists interleave.

  std::map<std::string, Value> inputs;   // "tokens", "targets": written by the host.
  std::map<std::string, Value> outputs;  // "logits": stay until the slot's next forward.

  int64_t flat_elements = 0;  // Of each flat buffer, padding included; set by LayOutParameters.
  bool training = false;      // Has gradients and an optimizer list.

  const ValueInfo& info(Value value) const;
  const ParameterStorage& storage(Value parameter_or_gradient) const;
  int64_t tokens() const { return micro_batch * sequence; }

  // This rank's parameters, in the order of the flat buffers.
  std::vector<ParameterBox> Parameters() const;
  int64_t NumParameters() const;  // Elements of the global tensors, padding not counted.

  // FLOPs and bytes of the instances of one list.
  Cost CostOf(List list) const;

  // One line an instance: list, block, op, label, outputs, inputs.
  std::string Dump() const;
};

}  // namespace trainyard
