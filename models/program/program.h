// A recorded program: values, parameters, and instances of ops in the order in which they run. A
// program holds no data and no addresses. Passes edit it; `Executable` binds and replays it.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "kernels/device/sequence_part.h"
#include "models/parallel/context_exchange.h"
#include "models/parallel/mesh.h"
#include "models/program/flat_map.h"
#include "models/program/parameter.h"
#include "models/program/precision.h"
#include "models/program/value.h"

namespace trainyard {

class Op;

// The list that an instance belongs to. An action of a schedule runs one or more lists. Within an
// action, instances run in program order.
enum class List : uint8_t {
  kInit,     // Once, for a fresh model: initial parameters.
  kPrepare,  // After init or a load, before the first step: constants, compute copies.
  kJoin,     // Before masters are read: makes those that are split whole.
  kForward,
  kBackwardInput,   // Gradients of activations, and of gains and biases.
  kBackwardWeight,  // Weight gradients of matrix products: may run later than the above.
  kOptimizer,
  kGather,  // ZeRO FULL: gathers a block's weights. Instances of "fetch" post it, no action.
};
const char* Name(List list);
inline bool IsBackward(List list) {
  return list == List::kBackwardInput || list == List::kBackwardWeight;
}

enum class Stream : uint8_t { kCompute, kCommunication };

// The ranks that differ along these axes alone, communicating on this stream.
struct Group {
  Stream stream = Stream::kCompute;
  AxisSet axes;
  auto operator<=>(const Group&) const = default;
};

// The replays of its list in which an instance takes part. kFirstMicroBatch: the first micro-batch
// of a step, and the first batch of a validation. The outputs then depend on parameters alone.
// kValidation is for work that the backward lists do in training.
enum class When : uint8_t { kAlways, kFirstMicroBatch, kLastMicroBatch, kValidation };

struct Instance {
  std::shared_ptr<const Op> op;
  std::vector<Value> inputs = {};
  std::vector<Value> outputs = {};
  List list = List::kForward;
  int block = 0;
  Stream stream = Stream::kCompute;
  When when = When::kAlways;
  std::string label = {};  // Part of the model: "embed", "attention", "mlp", "head", ...
  // Events order the streams. An instance that awaits an event waits for the last instance that was
  // posted on the communication stream and signals this event. kNoEvent: none.
  int signals = kNoEvent;
  std::vector<int> awaits = {};
  static constexpr int kNoEvent = -1;
};

// How often a training step of so many micro-batches runs an instance of the lists of micro-batches
// or of kOptimizer.
int64_t TimesInStep(const Instance& instance, int64_t micro_batches);

// A block of numbers with one scale that the layout divides among ranks. Such a layout would have
// other blocks than one rank has, so a training program has none: Validate refuses the job.
struct DividedBlock {
  std::string weight;  // Of the product.
  enum class Dim : uint8_t { kOutputs, kInputs, kTokens } dim = Dim::kOutputs;
  int64_t block = 0;  // So many neighbours along the dim share a scale.
  int64_t part = 0;   // So many of them follow one another on a rank.
  AxisSet axes = {};  // Over which ranks divide the dim.
  bool operator==(const DividedBlock&) const = default;
};
std::ostream& operator<<(std::ostream& out, const DividedBlock& divided);

struct Cost {
  double flops = 0;  // Matrix work only: products and attention. Multiply and add count as two.
  double bytes = 0;  // The least memory traffic: every operand once.
  // Bytes that a GPU reads over the host's link. The GPU writes as many back. `bytes` has neither.
  double host_bytes = 0;
};

// Default size of the gradients that one collective sums: those of a few blocks.
inline constexpr size_t kBucketBytes = 32 << 20;

// A contiguous range of the gradients that one collective sums. With ZeRO, a rank keeps master
// weights and moments only of its shard, an equal part of the range.
struct Bucket {
  FlatRange flat = {};       // Among all parameters; the shards divide its length.
  FlatRange shard = {};      // This rank's part in kMaster and the moments; all without ZeRO.
  FlatRange own = {};        // The same part among all parameters.
  AxisSet zero_axes = {};    // Divided over these axes; empty: not divided.
  AxisSet reduce_axes = {};  // All gradients are summed over these axes, which include zero_axes.
  bool tied = false;         // Summed also over the stages that share it.
  bool unrounded = false;  // As ParameterSpec::unrounded, which all its parameters are or are not.
  // Whole only in windows (ZeRO FULL). The bucket then has parameters of one block, and only `list`
  // writes its gradients.
  bool windowed = false;
  List list = List::kBackwardWeight;
  bool copied = false;  // The parameters' compute copy outlives a step.
  // Whether each rank holds a copy of the whole bucket, gathered after the update.
  bool gathered() const { return !zero_axes.empty() && !windowed; }
  int first_block = 0;  // Blocks [first_block, last_block].
  int last_block = 0;
};

// A value that crosses from one chunk to the next. Each of the two chunks has its own Crossing for
// the value. A value that a chunk passes on without reading it is in both `received` and `sent`.
struct Crossing {
  std::string name;
  Value value = {};
  Value gradient = {};  // Crosses the other way; invalid without trainable parameters before.
};

// A contiguous range of the frozen parameters of one block. Ranges count bytes.
struct FrozenBucket {
  FlatRange flat = {};     // The shards divide its length.
  FlatRange own = {};      // What this rank keeps: its shard, or all.
  AxisSet zero_axes = {};  // Divided over these axes (ZeRO FULL), and then whole only in windows.
  DType dtype = DType::kF32;
  int block = 0;
  bool windowed() const { return !zero_axes.empty(); }
};

// A run of blocks that a pipeline stage computes at once. The two lists are the values that cross
// its ends. Item i of `sent` is item i of the next chunk's `received`. A list is empty at an end of
// the model.
struct Chunk {
  int first_block = 0;  // Blocks [first_block, last_block].
  int last_block = 0;
  std::vector<Crossing> received = {};  // Before forward; its gradients leave after backward.
  std::vector<Crossing> sent = {};      // After forward; its gradients come before backward.
};

// Of a chunk of the output head's rows on a CPU. They stay near the caches.
inline constexpr int64_t kLogitsBytes = int64_t{16} << 20;

struct Program {
  Precision precision = Precision::F32();
  Mesh mesh;
  int64_t micro_batch = 0;              // Sequences.
  int64_t sequence = 0;                 // Tokens of one sequence, on all context ranks.
  int64_t cache = 0;                    // As RecordOptions::cache.
  int64_t cached_texts = 1;             // As RecordOptions::cached_texts.
  double expert_rows = 2;               // As RecordOptions::expert_rows.
  int64_t logits_bytes = kLogitsBytes;  // As RecordOptions::logits_bytes.
  bool restart_positions = false;       // As RecordOptions::restart_positions.
  bool deterministic = true;            // As RecordOptions::deterministic.
  bool last_logits = false;             // As RecordOptions::last_logits.
  int num_blocks = 0;                   // The whole model's: embedding, layers, head.
  ContextExchange context_exchange = ContextExchange::kRing;

  std::vector<ValueInfo> values;
  std::vector<ParameterStorage> storages;  // On this rank.
  std::vector<Instance> instances;         // In execution order; lists interleave.
  // ZeRO FULL: for a list and a chunk, the blocks that are fetched, in order (InsertFetches).
  std::map<std::pair<List, int>, std::vector<int>> fetches;
  std::vector<Chunk> chunks;  // On this rank, in the order of their blocks.

  // "tokens", "targets": written by the host. Each chunk that reads an input has its own value.
  std::multimap<std::string, Value> inputs;
  std::map<std::string, Value> outputs;  // "logits": kept until the slot's next forward.

  std::vector<Bucket> buckets;  // LayOutParameters sets this and the next four.
  std::vector<FrozenBucket> frozen_buckets;
  int64_t flat_elements = 0;   // All trainable parameters, padding included.
  int64_t shard_elements = 0;  // The parameters that this rank updates.
  std::array<FlatMap, kNumFlatBuffers> places;
  // How many elements of each buffer, the first ones, lie in the memory of the device's host
  // (PlaceBuffers).
  std::array<int64_t, kNumFlatBuffers> host_elements = {};
  int64_t num_parameters = 0;                // Elements of the global tensors of the whole model.
  bool training = false;                     // Has gradients and an optimizer list.
  std::vector<DividedBlock> divided_blocks;  // Each weight and dim once.

  const ValueInfo& info(Value value) const;
  const ParameterStorage& storage(Value parameter_or_gradient) const;
  // This rank's rows of one sequence, and their positions.
  int64_t sequence_rows() const { return sequence / mesh.context; }
  SequencePart sequence_part() const;
  int64_t tokens() const { return micro_batch * sequence_rows(); }  // On this rank.
  int chunk_of(int block) const;

  // The window of a block, 0 or 1. Neighbouring blocks of a rank have different windows.
  int window_of(int block) const;

  // The boxes of this rank's trainable parameters. Their `flat` counts among all of them.
  std::vector<ParameterBox> Parameters() const;
  // The boxes of the frozen parameters that this rank keeps. Their `flat` counts bytes of kFrozen.
  std::vector<ParameterBox> FrozenParameters() const;
  // The boxes of the parameters that this rank updates. Their `flat` counts in kMaster and the
  // moments.
  std::vector<ParameterBox> OwnedParameters() const;
  // The ranges that a buffer holds, and their places.
  const FlatMap& place(FlatBuffer buffer) const { return places[size_t(buffer)]; }
  DType dtype(FlatBuffer buffer) const;  // Not for frozen parameters, which have their own dtypes.
  // Bytes of a buffer in the device's memory, and in its host's.
  size_t BytesOf(FlatBuffer buffer) const;
  size_t HostBytesOf(FlatBuffer buffer) const;
  // Whether a range, which the buffer has in one piece, lies in the host's memory.
  bool InHostMemory(FlatBuffer buffer, const FlatRange& range) const;
  bool has_windows() const;  // Of weights.
  // The buffer in which forward and backward read these trainable parameters, and the buffer to
  // which they write the gradients.
  FlatBuffer weight_buffer(const FlatRange& flat) const;
  // The buffer in which forward and backward read a frozen storage.
  FlatBuffer frozen_buffer(const FlatRange& bytes) const;
  // Where masters are whole between kInit or a load and kPrepare, and after kJoin: in kMaster, or,
  // if they are split, where gradients lie. `shard` counts as in kMaster.
  struct MasterPlace {
    FlatBuffer buffer;
    FlatRange range;
  };
  MasterPlace PlaceOfMaster(const FlatRange& shard) const;
  // Where kMaster has these parameters, of which it holds all.
  FlatRange InMaster(const FlatRange& flat) const;
  FlatBuffer gradient_buffer(const FlatRange& flat) const;

  // The groups of ranks among which instances communicate. A group that two streams use counts
  // twice, because each stream has its own communicator.
  std::set<Group> Groups() const;

  // FLOPs and bytes of this rank's instances of one list, as a training step replays it.
  Cost CostOf(List list) const;

  // Returns one line: list, block, label, outputs, op, inputs.
  std::string Describe(const Instance& instance) const;
  // Returns all instances, a line each.
  std::string Dump() const;
};

}  // namespace trainyard
