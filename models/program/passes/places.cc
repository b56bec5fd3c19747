// Places the flat parameters in buffers.
#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "models/program/optimizer/matrices.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// A range that is whole in a window for a while.
struct Windowed {
  std::pair<List, int> window;
  int block;
  FlatRange flat;
};

// Places each range in its window, after the other ranges of its block. A window is as large as the
// largest of the blocks that use it in turn.
void PlaceInWindows(std::span<const Windowed> ranges, FlatMap& map) {
  using Window = std::pair<List, int>;
  std::map<Window, int64_t> sizes;
  std::map<std::pair<Window, int>, int64_t> used;  // By window and block.
  std::vector<int64_t> within;                     // By range: its place in the window.
  for (const Windowed& range : ranges) {
    int64_t& elements = used[{range.window, range.block}];
    within.push_back(elements);
    elements += range.flat.elements;
    sizes[range.window] = std::max(sizes[range.window], elements);
  }
  std::map<Window, int64_t> begins;
  int64_t end = 0;
  for (const auto& [window, size] : sizes) begins[window] = std::exchange(end, end + size);
  for (size_t i = 0; i < ranges.size(); ++i) {
    map.Place(ranges[i].flat, begins[ranges[i].window] + within[i]);
  }
}

void PlaceTrainableWindows(Program& program) {
  std::vector<Windowed> weights, gradients;
  for (const Bucket& bucket : program.buckets) {
    if (!bucket.windowed) continue;
    const int block = bucket.first_block, window = program.window_of(block);
    weights.push_back({{List::kGather, window}, block, bucket.flat});
    // A schedule may delay one list until after the other list of the next micro-batch, so each
    // list has its own windows.
    gradients.push_back({{bucket.list, window}, block, bucket.flat});
  }
  PlaceInWindows(weights, program.places[size_t(FlatBuffer::kComputeWindow)]);
  PlaceInWindows(gradients, program.places[size_t(FlatBuffer::kGradientWindow)]);
}

void PlaceFrozen(Program& program) {
  std::vector<Windowed> windowed;
  for (const FrozenBucket& bucket : program.frozen_buckets) {
    program.places[size_t(FlatBuffer::kFrozen)].Append(bucket.own);
    if (!bucket.windowed()) continue;
    windowed.push_back(
        {{List::kGather, program.window_of(bucket.block)}, bucket.block, bucket.flat});
  }
  PlaceInWindows(windowed, program.places[size_t(FlatBuffer::kFrozenWindow)]);
}

// Appends to each buffer of state the ranges that have such state.
void PlaceStates(Program& program, const Optimizer& optimizer) {
  const std::vector<UpdateRun> runs = UpdateRuns(program, optimizer);
  for (const Bucket& bucket : program.buckets) {
    for (const UpdateRun& run : runs) {
      FlatRange range = run.flat.Intersect(bucket.own);
      range.offset += bucket.shard.offset - bucket.own.offset;
      if (range.empty()) continue;
      for (const FlatBuffer state : run.matrices ? optimizer.matrices->states : optimizer.states) {
        program.places[size_t(state)].Append(range);
      }
    }
  }
}

// Places the masters that are whole. Those of copied buckets come first, and lie in the host's
// memory.
void PlaceOffloadedMasters(Program& program, bool split) {
  FlatMap& map = program.places[size_t(FlatBuffer::kMaster)];
  int64_t on_host = 0;
  for (const Bucket& bucket : program.buckets) {
    if (bucket.copied && !split) on_host += bucket.shard.elements;
  }
  int64_t host = 0, device = on_host;
  for (const Bucket& bucket : program.buckets) {
    if (bucket.copied && split) continue;  // The bucket has remainders.
    int64_t& next = bucket.copied ? host : device;
    map.Place(bucket.shard, next);
    next += bucket.shard.elements;
  }
  program.host_elements[size_t(FlatBuffer::kMaster)] = on_host;
}

// All of a buffer lies in the host's memory.
void Offload(Program& program, FlatBuffer buffer) {
  program.host_elements[size_t(buffer)] = program.place(buffer).elements();
}

}  // namespace

void PlaceBuffers(Program& program, const Optimizer& optimizer, bool offload) {
  PlaceFrozen(program);
  const auto append = [&](FlatBuffer buffer, const FlatRange& range) {
    program.places[size_t(buffer)].Append(range);
  };
  const bool whole = program.shard_elements == program.flat_elements;
  const bool converted = program.precision.weight != program.precision.master;
  if (program.shard_elements == 0) return;  // All parameters of this rank are frozen.
  const bool split = program.precision.split_masters;
  CHECK(program.training || !split) << "masters are split where they are updated";
  CHECK(program.training || !offload) << "state is offloaded where there is an optimizer";
  if (!split && !offload) append(FlatBuffer::kMaster, {.elements = program.shard_elements});
  if (program.training) PlaceStates(program, optimizer);
  for (Bucket& bucket : program.buckets) {
    const FlatRange& kept = bucket.windowed ? bucket.own : bucket.flat;
    bucket.copied = !bucket.unrounded && (converted || offload || (!whole && !bucket.windowed));
    if (bucket.copied) append(FlatBuffer::kCompute, kept);
    if (split && bucket.copied) append(FlatBuffer::kRemainder, bucket.shard);
    if (split && !bucket.copied && !offload) append(FlatBuffer::kMaster, bucket.shard);
    if (program.training) append(FlatBuffer::kGradient, kept);
  }
  if (offload) {
    PlaceOffloadedMasters(program, split);
    Offload(program, FlatBuffer::kRemainder);
    for (const FlatBuffer state : kStateBuffers) Offload(program, state);
  }
  if (program.training && program.precision.reduced != program.precision.gradient) {
    for (const Bucket& bucket : program.buckets) {  // They take turns in the same memory.
      if (!bucket.reduce_axes.empty())
        program.places[size_t(FlatBuffer::kReduced)].Place(bucket.flat, 0);
    }
  }
  PlaceTrainableWindows(program);
}

}  // namespace trainyard
