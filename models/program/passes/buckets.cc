#include <algorithm>
#include <map>

#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

struct Bucket {
  FlatRange range;
  AxisSet axes;
  size_t last_writer;  // Index of the instance after which the gradients are complete.
};

std::vector<Bucket> FillBuckets(const Program& program, size_t bucket_bytes) {
  std::vector<size_t> last_writer(program.storages.size(), program.instances.size());
  for (size_t i = 0; i < program.instances.size(); ++i) {
    for (Value output : program.instances[i].outputs) {
      const ValueInfo& info = program.info(output);
      if (info.kind == ValueKind::kParameterGradient) last_writer[info.storage] = i;
    }
  }
  const int64_t bucket_elements = int64_t(bucket_bytes / SizeOf(program.precision.accumulate));
  std::vector<Bucket> buckets;
  int64_t end = program.flat_elements;
  for (size_t i = program.storages.size(); i-- > 0;) {
    const ParameterStorage& storage = program.storages[i];
    CHECK(last_writer[i] < program.instances.size())
        << "nothing writes the gradient of " << storage.parameters.front().name;
    const bool full = buckets.empty() || buckets.back().range.elements >= bucket_elements ||
                      buckets.back().axes != storage.reduce_axes;
    if (full) buckets.push_back({{.offset = end}, storage.reduce_axes, 0});
    Bucket& bucket = buckets.back();
    bucket.range.elements += end - storage.flat.offset;
    bucket.range.offset = end = storage.flat.offset;
    bucket.last_writer = std::max(bucket.last_writer, last_writer[i]);
  }
  return buckets;
}

}  // namespace

void InsertBuckets(Program& program, size_t bucket_bytes) {
  std::multimap<size_t, Instance> after;  // By index of the instance that each follows.
  for (const Bucket& bucket : FillBuckets(program, bucket_bytes)) {
    if (bucket.axes.empty()) continue;
    after.emplace(bucket.last_writer, ops::ReduceBucket(bucket.range, bucket.axes));
  }
  size_t last_backward = 0;
  AxisSet loss_axes;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    const bool backward =
        instance.list == List::kBackwardInput || instance.list == List::kBackwardWeight;
    if (backward) last_backward = i;
    if (instance.op->is_loss()) {
      loss_axes = loss_axes | program.info(instance.inputs[0]).varying;
    }
  }
  if (!loss_axes.empty()) after.emplace(last_backward, ops::ReduceLoss(loss_axes));

  std::vector<Instance> instances;
  instances.reserve(program.instances.size() + after.size());
  for (size_t i = 0; i < program.instances.size(); ++i) {
    instances.push_back(std::move(program.instances[i]));
    for (auto [it, end] = after.equal_range(i); it != end; ++it) {
      instances.push_back(std::move(it->second));
    }
  }
  program.instances = std::move(instances);
}

}  // namespace trainyard
