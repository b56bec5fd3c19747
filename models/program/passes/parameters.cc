// The flat buffers: layout, initial values.
#include <algorithm>
#include <tuple>

#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// The axes among which a bucket's collective sums; what else a parameter's gradient is summed over
// is summed before (tensor ranks, for norms and other small ones).
constexpr AxisSet kBucketAxes = kBatchAxes;

AxisSet BucketAxes(const ParameterStorage& storage) {
  AxisSet axes = kBucketAxes;
  for (const ParameterSpec& spec : storage.parameters) axes = axes & storage.ReduceAxes(spec);
  return axes;
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Storages that may share a bucket have equal keys but for the last two fields.
auto LayoutKey(const Program& program, const ParameterStorage& storage) {
  return std::make_tuple(storage.tied, program.chunk_of(storage.block), BucketAxes(storage),
                         storage.block, !storage.decay);
}

// Storages [first, last] of one bucket.
struct Members {
  size_t first, last;
};

// From the end, as the backward pass makes gradients complete.
std::vector<Members> FillBuckets(const Program& program, int64_t bucket_elements) {
  const std::vector<ParameterStorage>& storages = program.storages;
  std::vector<Members> buckets;
  int64_t elements = 0;
  for (size_t i = storages.size(); i-- > 0;) {
    const auto [tied, chunk, axes, block, gain] = LayoutKey(program, storages[i]);
    const bool open = !buckets.empty() && elements < bucket_elements;
    if (open) {
      const auto [tied_, chunk_, axes_, block_, gain_] =
          LayoutKey(program, storages[buckets.back().first]);
      if (std::tie(tied, chunk, axes) == std::tie(tied_, chunk_, axes_)) {
        buckets.back().first = i;
        elements += storages[i].flat.elements;
        continue;
      }
    }
    buckets.push_back({i, i});
    elements = storages[i].flat.elements;
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

}  // namespace

void LayOutParameters(Program& program, const LayoutOptions& options) {
  std::vector<ParameterStorage>& storages = program.storages;
  std::stable_sort(storages.begin(), storages.end(),
                   [&](const ParameterStorage& a, const ParameterStorage& b) {
                     return LayoutKey(program, a) < LayoutKey(program, b);
                   });
  const int64_t bucket_elements =
      int64_t(options.bucket_bytes / SizeOf(program.precision.accumulate));
  int64_t offset = 0, shard_offset = 0;
  for (const Members& members : FillBuckets(program, bucket_elements)) {
    Bucket bucket{.reduce_axes = BucketAxes(storages[members.first]),
                  .tied = storages[members.first].tied,
                  .first_block = storages[members.first].block,
                  .last_block = storages[members.last].block};
    if (options.zero != Zero::kNone) bucket.zero_axes = bucket.reduce_axes;
    const int64_t shards = program.mesh.size(bucket.zero_axes);
    bucket.flat.offset = offset;
    for (size_t i = members.first; i <= members.last; ++i) {
      ParameterStorage& storage = storages[i];
      CHECK(storage.used) << storage.parameters.front().name << " is declared and never used";
      storage.flat.offset = offset;
      offset += RoundUp(storage.flat.elements, kFlatAlignment);
      program.values[size_t(storage.weight.id)].storage = int(i);
      if (storage.gradient.valid()) program.values[size_t(storage.gradient.id)].storage = int(i);
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
  program.flat_elements = offset;
  program.shard_elements = shard_offset;
}

void RecordInitialization(Recorder& recorder) {
  const Program& program = recorder.program();
  for (const ParameterBox& box : program.OwnedParameters()) ops::InitializeBox(recorder, box);
  if (program.training) {
    const FlatRange all{.elements = program.shard_elements};
    ops::FillFlat(recorder, FlatBuffer::kFirstMoment, all, 0);
    ops::FillFlat(recorder, FlatBuffer::kSecondMoment, all, 0);
  }
  if (!program.has_compute_copy()) return;
  for (const Bucket& bucket : program.buckets) {
    ops::CastToCompute(recorder, bucket.shard, bucket.own);
    ops::GatherBucket(recorder, List::kPrepare, bucket);
  }
}

}  // namespace trainyard
