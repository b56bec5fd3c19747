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

#include "kernels/sequence_part.h"
#include "models/parallel/context_exchange.h"
#include "models/parallel/mesh.h"
#include "models/program/flat_map.h"
#include "models/program/parameter.h"
#include "models/program/precision.h"
#include "models/program/value.h"

namespace trainyard {

class Op;

// What an instance belongs to; a schedule's action names lists. Within one action, instances run in
// program order.
enum class List : uint8_t {
  kInit,     // Once, for a fresh model: initial parameters.
  kPrepare,  // After init or a load, before the first step: constants, compute copies.
  kForward,
  kBackwardInput,   // Gradients of activations, and of gains and biases.
  kBackwardWeight,  // Weight gradients of matrix products: may run later than the above.
  kOptimizer,
  kGather,  // ZeRO FULL: a block's weights made whole. No action's: instances of "fetch" post it.
};
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

// In which replays of its list an instance takes part. In validation no backward follows, which
// otherwise does what these do.
enum class When : uint8_t { kAlways, kLastMicroBatch, kValidation };

struct Instance {
  std::shared_ptr<const Op> op;
  std::vector<Value> inputs = {};
  std::vector<Value> outputs = {};
  List list = List::kForward;
  int block = 0;
  Stream stream = Stream::kCompute;
  When when = When::kAlways;
  std::string label = {};  // Part of the model: "embed", "attention", "mlp", "head", ...
  // Where the streams meet, by number: an instance that awaits an event runs when the last instance
  // posted on the communication stream that signals it is done. kNoEvent: neither.
  int signals = kNoEvent;
  int awaits = kNoEvent;
  static constexpr int kNoEvent = -1;
};

struct Cost {
  double flops = 0;  // Of matrix work only: products and attention, multiply and add counted apart.
  double bytes = 0;  // Least traffic to memory: every operand once.
};

// Unless asked for otherwise, what one collective sums: gradients of a few blocks.
inline constexpr size_t kBucketBytes = 32 << 20;

// A contiguous range of the gradients that one collective sums. With ZeRO a rank keeps master
// weights and moments of its shard alone: an equal part of the range.
struct Bucket {
  FlatRange flat = {};       // Of all parameters; its length divides by the shards.
  FlatRange shard = {};      // This rank's part in kMaster and the moments. All of it without ZeRO.
  FlatRange own = {};        // The same part among all parameters.
  AxisSet zero_axes = {};    // Over which it is divided; empty: not.
  AxisSet reduce_axes = {};  // Over which all its gradients are summed; zero_axes among them.
  bool tied = false;         // Summed over the stages that share it, too.
  // Whole in the windows alone (ZeRO FULL). Then it is of one block, and `list` alone writes its
  // gradients.
  bool windowed = false;
  List list = List::kBackwardWeight;
  bool copied = false;  // Of what outlives a step there is a copy in the format of weights.
  // All ranks hold copies of the whole, which they tell each other after the update.
  bool gathered() const { return !zero_axes.empty() && !windowed; }
  int first_block = 0;  // Blocks [first_block, last_block].
  int last_block = 0;
};

// A value that crosses from one chunk to the next. Each of the two chunks has a Crossing of its own
// for it. A value that a chunk passes on without reading it is in `received` and in `sent`.
struct Crossing {
  std::string name;
  Value value = {};
  Value gradient = {};  // Crosses the other way; invalid where nothing trainable lies before.
};

// A run of blocks that a pipeline stage computes in one go. What crosses its ends comes from and
// goes to the chunks before and after it, in the order of these lists: item i of `sent` is item i
// of the next chunk's `received`. They are empty at the ends of the model.
struct Chunk {
  int first_block = 0;  // Blocks [first_block, last_block].
  int last_block = 0;
  std::vector<Crossing> received = {};  // Before forward; its gradients leave after backward.
  std::vector<Crossing> sent = {};      // After forward; its gradients come before backward.
};

struct Program {
  Precision precision = Precision::F32();
  Mesh mesh;
  int64_t micro_batch = 0;    // Sequences.
  int64_t sequence = 0;       // Tokens of one, on all context ranks.
  double expert_rows = 2;     // As RecordOptions::expert_rows.
  bool deterministic = true;  // As RecordOptions::deterministic.
  int num_blocks = 0;         // Of the model: embedding, layers, head.
  ContextExchange context_exchange = ContextExchange::kRing;

  std::vector<ValueInfo> values;
  std::vector<ParameterStorage> storages;  // This rank's.
  std::vector<Instance> instances;         // In execution order; lists interleave.
  // ZeRO FULL: the blocks whose weights a list of a chunk fetches, in that order (InsertFetches).
  std::map<std::pair<List, int>, std::vector<int>> fetches;
  std::vector<Chunk> chunks;  // This rank's, in the order of their blocks.

  // "tokens", "targets": written by the host. Each chunk that reads an input has its own.
  std::multimap<std::string, Value> inputs;
  std::map<std::string, Value> outputs;  // "logits": stay until the slot's next forward.

  std::vector<Bucket> buckets;  // Set by LayOutParameters, as are the next three.
  int64_t flat_elements = 0;    // All trainable parameters, padding included.
  int64_t shard_elements = 0;   // What this rank updates.
  std::array<FlatMap, kNumFlatBuffers> places;
  int64_t num_parameters = 0;  // Of the whole model: elements of the global tensors.
  bool training = false;       // Has gradients and an optimizer list.

  const ValueInfo& info(Value value) const;
  const ParameterStorage& storage(Value parameter_or_gradient) const;
  int64_t sequence_rows() const { return sequence / mesh.context; }  // Of one, on this rank.
  SequencePart sequence_part() const;                                // Which those are.
  int64_t tokens() const { return micro_batch * sequence_rows(); }   // On this rank.
  int chunk_of(int block) const;

  // The window of a block, 0 or 1: not that of the rank's block before, nor of the next.
  int window_of(int block) const;

  // This rank's trainable parameters; `flat` counts all of them.
  std::vector<ParameterBox> Parameters() const;
  // Its frozen ones; `flat` counts bytes of kFrozen.
  std::vector<ParameterBox> FrozenParameters() const;
  // What this rank updates: `flat` counts in kMaster and the moments.
  std::vector<ParameterBox> OwnedParameters() const;
  // What lies in a buffer, and where.
  const FlatMap& place(FlatBuffer buffer) const { return places[size_t(buffer)]; }
  DType dtype(FlatBuffer buffer) const;  // Not of kFrozen, whose parameters have their own.
  size_t BytesOf(FlatBuffer buffer) const;
  bool has_windows() const { return place(FlatBuffer::kComputeWindow).elements() > 0; }
  // The buffers in which forward and backward find these trainable parameters, and write their
  // gradients.
  FlatBuffer weight_buffer(const FlatRange& flat) const;
  FlatBuffer gradient_buffer(const FlatRange& flat) const;

  // The groups of ranks among which instances communicate. A group that two streams use counts
  // twice: each has a communicator of its own.
  std::set<Group> Groups() const;

  // FLOPs and bytes of this rank's instances of one list, as a training step replays it.
  Cost CostOf(List list) const;

  // One line: list, block, label, outputs, op, inputs.
  std::string Describe(const Instance& instance) const;
  // All instances, a line each.
  std::string Dump() const;
};

}  // namespace trainyard
