#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "models/program/block_windows.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

bool ReadsWindow(const Program& program, const Instance& instance) {
  return std::any_of(instance.inputs.begin(), instance.inputs.end(), [&](Value input) {
    if (program.info(input).kind != ValueKind::kParameter) return false;
    const ParameterStorage& storage = program.storage(input);
    return storage.frozen ? program.frozen_buffer(storage.flat) == FlatBuffer::kFrozenWindow
                          : program.weight_buffer(storage.flat) == FlatBuffer::kComputeWindow;
  });
}

}  // namespace

void InsertFetches(Program& program) {
  std::vector<size_t> first_readers;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    if (!ReadsWindow(program, instance)) continue;
    CHECK(instance.list != List::kBackwardWeight)
        << instance.op->name() << " of block " << instance.block << " reads weights in list "
        << Name(instance.list) << ", for which none are fetched";
    std::vector<int>& before = program.fetches[{instance.list, program.chunk_of(instance.block)}];
    if (!before.empty() && before.back() == instance.block) continue;
    CHECK(std::count(before.begin(), before.end(), instance.block) == 0)
        << "list " << Name(instance.list) << " returns to the weights of block " << instance.block;
    before.push_back(instance.block);
    first_readers.push_back(i);
  }

  std::vector<Instance> instances;
  size_t next = 0;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    Instance& instance = program.instances[i];
    if (next < first_readers.size() && first_readers[next] == i) {
      const std::vector<int>& order =
          program.fetches[{instance.list, program.chunk_of(instance.block)}];
      const auto ahead = std::next(std::find(order.begin(), order.end(), instance.block));
      instances.push_back(ops::Fetch(instance.list, instance.block,
                                     ahead == order.end() ? BlockWindows::kNoBlock : *ahead));
      ++next;
    }
    instances.push_back(std::move(instance));
  }
  for (const Bucket& bucket : program.buckets) {
    if (bucket.windowed) instances.push_back(ops::GatherWindow(bucket));
  }
  for (const FrozenBucket& bucket : program.frozen_buckets) {
    if (bucket.windowed()) instances.push_back(ops::GatherWindow(bucket));
  }
  program.instances = std::move(instances);
}

}  // namespace trainyard
