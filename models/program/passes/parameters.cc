// The flat buffers: layout, initial values.
#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// The axes over which a bucket's collective sums. A parameter's gradient may have to be summed over
// further axes, for example over tensor ranks for gains; these sums come first.
constexpr AxisSet kBucketAxes = kBatchAxes;

AxisSet BucketAxes(const ParameterStorage& storage) {
  // Every rank needs the whole master. The sums of balanced biases are counts, which must add up
  // exactly, and a bucket may be sent in bf16.
  if (storage.parameters.front().unrounded) return {};
  AxisSet axes = kBucketAxes;
  for (const ParameterSpec& spec : storage.parameters) axes = axes & storage.ReduceAxes(spec);
  return axes;
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// The uses of a storage in the program.
struct Uses {
  std::set<int> blocks;
  std::set<List> writers;  // The lists that write its gradient.
};

// By id of the storage's weight.
std::vector<Uses> FindUses(const Program& program) {
  std::vector<Uses> of_value(program.values.size());
  for (const Instance& instance : program.instances) {
    for (Value input : instance.inputs) of_value[size_t(input.id)].blocks.insert(instance.block);
    for (Value output : instance.outputs) {
      of_value[size_t(output.id)].blocks.insert(instance.block);
      of_value[size_t(output.id)].writers.insert(instance.list);
    }
  }
  std::vector<Uses> of_weight(program.values.size());
  for (const ParameterStorage& storage : program.storages) {
    Uses& uses = of_weight[size_t(storage.weight.id)];
    uses.blocks = of_value[size_t(storage.weight.id)].blocks;
    if (!storage.gradient.valid()) continue;
    uses.blocks.merge(of_value[size_t(storage.gradient.id)].blocks);
    uses.writers = of_value[size_t(storage.gradient.id)].writers;
  }
  return of_weight;
}

// The sort key of storages.
struct LayoutKey {
  bool frozen;
  bool windowed;
  bool unrounded;
  bool tied;
  int chunk;
  AxisSet axes;
  AxisSet sums;  // Of unrounded storages: those of one sum lie together, for one collective.
  int block;
  List list;  // For windowed storages.
  bool gain;
  DType dtype;  // Of frozen storages: those of one dtype lie together, for one gather.
  auto operator<=>(const LayoutKey&) const = default;

  // Whether the two storages may share a bucket.
  bool Matches(const LayoutKey& o) const {
    const auto joint = [](const LayoutKey& k) {
      return std::tie(k.windowed, k.unrounded, k.tied, k.chunk, k.axes);
    };
    const bool same_window = !windowed || std::tie(block, list) == std::tie(o.block, o.list);
    return joint(*this) == joint(o) && same_window;
  }
};

LayoutKey KeyOf(const Program& program, const ParameterStorage& storage, const Uses& uses,
                Zero zero) {
  const AxisSet axes = BucketAxes(storage);
  if (storage.frozen) {
    const bool windowed = zero == Zero::kFull && !storage.tied && uses.blocks.size() == 1;
    return {.frozen = true,
            .windowed = windowed && !axes.empty(),
            .unrounded = false,
            .tied = false,
            .chunk = program.chunk_of(storage.block),
            .axes = windowed ? axes : AxisSet{},
            .sums = {},
            .block = storage.block,
            .list = List::kForward,
            .gain = false,
            .dtype = *storage.frozen};
  }
  const bool unrounded = storage.parameters.front().unrounded;
  // A storage that several blocks or stages use would have to be whole for longer.
  const bool windowed = zero == Zero::kFull && !storage.tied && !axes.empty() &&
                        uses.blocks.size() == 1 && uses.writers.size() == 1;
  return {.frozen = false,
          .windowed = windowed,
          .unrounded = unrounded,
          .tied = storage.tied,
          .chunk = program.chunk_of(storage.block),
          .axes = axes,
          .sums = unrounded ? storage.ReduceAxes(storage.parameters.front()) : AxisSet{},
          .block = storage.block,
          .list = windowed ? *uses.writers.begin() : List::kBackwardWeight,
          .gain = !storage.decay,
          .dtype = DType::kF32};
}

// A small model uses smaller buckets than asked for: with few buckets, little of the backward pass
// is left in which they could be reduced.
int64_t BucketElements(const Program& program, size_t bucket_bytes) {
  constexpr size_t kBuckets = 16, kLeastBytes = 1 << 20;
  size_t elements = 0;
  for (const ParameterStorage& storage : program.storages) {
    if (!storage.frozen) elements += size_t(storage.flat.elements);
  }
  const size_t size = SizeOf(program.precision.gradient);
  const size_t wanted = std::max(elements * size / kBuckets, kLeastBytes);
  return int64_t(std::min(bucket_bytes, wanted) / size);
}

// The storages [first, last] of one bucket.
struct Members {
  size_t first, last;
};

// Fills buckets from the end, in the order in which the backward pass completes gradients.
std::vector<Members> FillBuckets(const Program& program, const std::vector<LayoutKey>& keys,
                                 int64_t bucket_elements) {
  std::vector<Members> buckets;
  int64_t elements = 0;
  for (size_t i = keys.size(); i-- > 0;) {
    const bool open = !buckets.empty() && elements < bucket_elements;
    if (open && keys[i].Matches(keys[buckets.back().first])) {
      buckets.back().first = i;
    } else {
      buckets.push_back({i, i});
      elements = 0;
    }
    elements += program.storages[i].flat.elements;
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// Makes the storage's values refer to its new index.
void Number(Program& program, size_t index) {
  const ParameterStorage& storage = program.storages[index];
  CHECK(storage.used) << storage.parameters.front().name << " is declared and never used";
  program.values[size_t(storage.weight.id)].storage = int(index);
  if (storage.gradient.valid()) program.values[size_t(storage.gradient.id)].storage = int(index);
}

// Places the storages from `first` on, which are frozen. Storages of one block, dtype and axes
// share a bucket.
void LayOutFrozen(Program& program, size_t first, const std::function<LayoutKey(size_t)>& key_of) {
  int64_t offset = 0;
  for (size_t i = first; i < program.storages.size();) {
    const LayoutKey key = key_of(i);
    FrozenBucket bucket{.flat = {.offset = offset},
                        .zero_axes = key.axes,
                        .dtype = *program.storages[i].frozen,
                        .block = key.block};
    for (; i < program.storages.size() && key_of(i) == key &&
           program.storages[i].frozen == bucket.dtype;
         ++i) {
      ParameterStorage& storage = program.storages[i];
      storage.flat.offset = offset;
      offset += RoundUp(storage.flat.elements, kFrozenAlignment);
      Number(program, i);
    }
    const int64_t shards = program.mesh.size(key.axes);
    offset = bucket.flat.offset + RoundUp(offset - bucket.flat.offset, kFrozenAlignment * shards);
    bucket.flat.elements = offset - bucket.flat.offset;
    const int64_t own = bucket.flat.elements / shards;
    bucket.own = {.offset = bucket.flat.offset + program.mesh.coordinate(key.axes) * own,
                  .elements = own};
    program.frozen_buckets.push_back(bucket);
  }
}

}  // namespace

void LayOutParameters(Program& program, const LayoutOptions& options) {
  std::vector<ParameterStorage>& storages = program.storages;
  const std::vector<Uses> uses = FindUses(program);
  const auto key_of = [&](const ParameterStorage& storage) {
    return KeyOf(program, storage, uses[size_t(storage.weight.id)], options.zero);
  };
  std::stable_sort(
      storages.begin(), storages.end(),
      [&](const ParameterStorage& a, const ParameterStorage& b) { return key_of(a) < key_of(b); });
  std::vector<LayoutKey> keys;
  for (const ParameterStorage& storage : storages) {
    if (!storage.frozen) keys.push_back(key_of(storage));
  }
  const int64_t bucket_elements = BucketElements(program, options.bucket_bytes);
  int64_t offset = 0, shard_offset = 0;
  for (const Members& members : FillBuckets(program, keys, bucket_elements)) {
    const LayoutKey& key = keys[members.first];
    Bucket bucket{.reduce_axes = key.axes,
                  .tied = key.tied,
                  .unrounded = key.unrounded,
                  .windowed = key.windowed,
                  .list = key.list,
                  .first_block = storages[members.first].block,
                  .last_block = storages[members.last].block};
    if (options.zero != Zero::kNone) bucket.zero_axes = bucket.reduce_axes;
    const int64_t shards = program.mesh.size(bucket.zero_axes);
    bucket.flat.offset = offset;
    for (size_t i = members.first; i <= members.last; ++i) {
      ParameterStorage& storage = storages[i];
      storage.flat.offset = offset;
      offset += RoundUp(storage.flat.elements, kFlatAlignment);
      Number(program, i);
    }
    offset = bucket.flat.offset + RoundUp(offset - bucket.flat.offset, kFlatAlignment * shards);
    bucket.flat.elements = offset - bucket.flat.offset;
    bucket.shard = {.offset = shard_offset, .elements = bucket.flat.elements / shards};
    bucket.own = {.offset = bucket.flat.offset +
                            program.mesh.coordinate(bucket.zero_axes) * bucket.shard.elements,
                  .elements = bucket.shard.elements};
    shard_offset += bucket.shard.elements;
    program.buckets.push_back(bucket);
  }
  LayOutFrozen(program, keys.size(), [&](size_t i) { return key_of(storages[i]); });
  program.flat_elements = offset;
  program.shard_elements = shard_offset;
  PlaceBuffers(program, *options.optimizer, options.offload);
}

void RecordInitialization(Recorder& recorder) {
  const Program& program = recorder.program();
  for (const ParameterBox& box : program.OwnedParameters()) ops::InitializeBox(recorder, box);
  for (const ParameterBox& box : program.FrozenParameters()) ops::InitializeBox(recorder, box);
  for (const FlatBuffer state : kStateBuffers) {
    for (const FlatRange& range : program.place(state).ranges()) {
      ops::FillFlat(recorder, state, range, 0);
    }
  }
  if (program.training) ops::WaitForCommunication(recorder, List::kPrepare);
  for (const Bucket& bucket : program.buckets) {
    if (!bucket.copied) continue;
    const bool split = program.precision.split_masters;
    (split ? ops::SplitMasters : ops::CastToCompute)(recorder, bucket.shard, bucket.own);
    if (!bucket.gathered()) continue;
    recorder.mutable_program().instances.push_back(
        ops::GatherBucket(List::kPrepare, Stream::kCompute, bucket));
  }
  if (program.has_windows()) ops::ForgetBlocks(recorder, List::kPrepare);
  if (!program.precision.split_masters) return;
  ops::WaitForCommunication(recorder, List::kJoin);
  for (const Bucket& bucket : program.buckets) {
    if (bucket.copied) ops::JoinMasters(recorder, bucket.shard, bucket.own);
  }
}

}  // namespace trainyard
