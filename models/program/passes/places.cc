// Places the flat parameters in buffers.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "models/program/optimizer/matrices.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

using Window = std::pair<List, int>;

// Places each windowed bucket in the window that `window_of` returns, after the other buckets of
// its block. A window is as large as the largest of the blocks that use it in turn.
template <typename F>
void PlaceInWindows(Program& program, FlatBuffer buffer, F&& window_of) {
  std::map<Window, int64_t> sizes;
  std::map<std::pair<Window, int>, int64_t> used;  // By window and block.
  std::vector<int64_t> within;                     // By bucket: its place in the window.
  for (const Bucket& bucket : program.buckets) {
    if (!bucket.windowed) continue;
    const Window window = window_of(bucket);
    int64_t& elements = used[{window, bucket.first_block}];
    within.push_back(elements);
    elements += bucket.flat.elements;
    sizes[window] = std::max(sizes[window], elements);
  }
  std::map<Window, int64_t> begins;
  int64_t end = 0;
  for (const auto& [window, size] : sizes) begins[window] = std::exchange(end, end + size);
  size_t next = 0;
  for (const Bucket& bucket : program.buckets) {
    if (!bucket.windowed) continue;
    program.places[size_t(buffer)].Place(bucket.flat, begins[window_of(bucket)] + within[next++]);
  }
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

}  // namespace

void PlaceBuffers(Program& program, const Optimizer& optimizer) {
  const auto append = [&](FlatBuffer buffer, const FlatRange& range) {
    program.places[size_t(buffer)].Append(range);
  };
  const bool whole = program.shard_elements == program.flat_elements;
  const bool converted = program.precision.weight != program.precision.master;
  if (program.shard_elements == 0) return;  // All parameters of this rank are frozen.
  append(FlatBuffer::kMaster, {.elements = program.shard_elements});
  if (program.training) PlaceStates(program, optimizer);
  for (Bucket& bucket : program.buckets) {
    const FlatRange& kept = bucket.windowed ? bucket.own : bucket.flat;
    bucket.copied = !bucket.unrounded && (converted || (!whole && !bucket.windowed));
    if (bucket.copied) append(FlatBuffer::kCompute, kept);
    if (program.training) append(FlatBuffer::kGradient, kept);
  }
  if (program.training && program.precision.reduced != program.precision.gradient) {
    for (const Bucket& bucket : program.buckets) {  // They take turns in the same memory.
      if (!bucket.reduce_axes.empty())
        program.places[size_t(FlatBuffer::kReduced)].Place(bucket.flat, 0);
    }
  }
  PlaceInWindows(program, FlatBuffer::kComputeWindow, [&](const Bucket& bucket) {
    return Window(List::kGather, program.window_of(bucket.first_block));
  });
  // A schedule may delay one list until after the other list of the next micro-batch, so each list
  // has its own windows.
  PlaceInWindows(program, FlatBuffer::kGradientWindow, [&](const Bucket& bucket) {
    return Window(bucket.list, program.window_of(bucket.first_block));
  });
}

}  // namespace trainyard
