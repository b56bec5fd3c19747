#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// A range of a bucket whose gradients are also reduced over other axes, before the bucket is
// summed.
struct Before {
  FlatRange flat;
  AxisSet axes;
  ops::Reduction reduction;
};

// Neighbours that are reduced alike form one range, together with the padding between them.
std::vector<Before> FirstReductions(std::span<const ParameterBox> boxes, const Bucket& bucket) {
  std::vector<Before> reductions;
  bool follows = false;  // Whether the previous box is in the last range.
  for (const ParameterBox& box : Within(boxes, bucket.flat)) {
    const FlatRange flat = box.flat.Intersect(bucket.flat);
    const AxisSet axes = box.reduce_axes - bucket.reduce_axes;
    const bool max = box.state && box.state->kind == StateRule::Kind::kAmaxHistory;
    const ops::Reduction reduction = max ? ops::Reduction::kMax : ops::Reduction::kSum;
    if (follows && axes == reductions.back().axes && reduction == reductions.back().reduction) {
      reductions.back().flat.elements = flat.end() - reductions.back().flat.offset;
    } else if (!axes.empty()) {
      reductions.push_back({flat, axes, reduction});
    }
    follows = !axes.empty();
  }
  return reductions;
}

// Returns the index of the last instance that writes a gradient of the bucket.
size_t LastWriter(const Program& program, const Bucket& bucket) {
  size_t last = 0;
  std::vector<bool> written(program.storages.size());
  for (size_t i = 0; i < program.instances.size(); ++i) {
    for (Value output : program.instances[i].outputs) {
      const ValueInfo& info = program.info(output);
      if (info.kind != ValueKind::kParameterGradient) continue;
      written[size_t(info.storage)] = true;
      if (!program.storage(output).flat.Intersect(bucket.flat).empty()) last = i;
    }
  }
  for (size_t i = 0; i < written.size(); ++i) {
    CHECK(written[i] || program.storages[i].frozen)
        << "nothing writes the gradient of " << program.storages[i].parameters.front().name;
  }
  return last;
}

// This rank's part of a windowed bucket, without the padding, in which other blocks may have left
// values.
std::vector<FlatRange> OwnRanges(const Program& program, const Bucket& bucket) {
  std::vector<FlatRange> ranges;
  for (const ParameterStorage& storage : program.storages) {
    const FlatRange range = storage.flat.Intersect(bucket.own);
    if (storage.frozen || range.empty()) continue;
    if (!ranges.empty() && ranges.back().end() == range.offset) {
      ranges.back().elements += range.elements;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

// The event after which a block's gradients may be written to the window.
int EventOf(const Program& program, List list, int block) {
  return 2 * (list == List::kBackwardWeight) + program.window_of(block);
}

// Makes the first instance of each list and block that writes to a gradient window wait for the
// window's event.
void AwaitWindows(Program& program) {
  std::set<std::pair<List, int>> begun;
  for (Instance& instance : program.instances) {
    const bool writes =
        std::any_of(instance.outputs.begin(), instance.outputs.end(), [&](Value output) {
          return program.info(output).kind == ValueKind::kParameterGradient &&
                 program.gradient_buffer(program.storage(output).flat) ==
                     FlatBuffer::kGradientWindow;
        });
    if (!writes || !begun.insert({instance.list, instance.block}).second) continue;
    instance.awaits.push_back(EventOf(program, instance.list, instance.block));
  }
}

}  // namespace

void InsertBuckets(Program& program) {
  AwaitWindows(program);
  const std::vector<ParameterBox> boxes = program.Parameters();
  std::multimap<size_t, Instance> after;  // By index of the instance after which each is inserted.
  for (const Bucket& bucket : program.buckets) {
    const size_t last = LastWriter(program, bucket);
    for (const Before& first : FirstReductions(boxes, bucket)) {
      after.emplace(last, ops::ReduceGradients(bucket, first.flat, first.axes, first.reduction));
    }
    if (!bucket.reduce_axes.empty()) after.emplace(last, ops::ReduceBucket(program, bucket));
    if (!bucket.windowed) continue;
    Instance add = ops::AddToShard(bucket.list, OwnRanges(program, bucket));
    add.signals = EventOf(program, bucket.list, bucket.first_block);
    after.emplace(last, std::move(add));
  }

  std::vector<Instance> instances;
  instances.reserve(program.instances.size() + after.size());
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const int block = program.instances[i].block;
    instances.push_back(std::move(program.instances[i]));
    for (auto [it, end] = after.equal_range(i); it != end; ++it) {
      it->second.block = block;
      instances.push_back(std::move(it->second));
    }
  }
  program.instances = std::move(instances);
}

}  // namespace trainyard
