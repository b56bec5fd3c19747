#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void Fuse(Program& program) {
  std::vector<Instance> fused;
  std::vector<int> maker(program.values.size(), -1);  // By value id: index in `fused`.
  // `instance` and one of those before, in the place of the latter: nothing else that it reads may
  // be made after that.
  const auto join = [&](const Instance& instance) {
    for (Value input : instance.inputs) {
      const int at = maker[size_t(input.id)];
      if (at < 0) continue;
      Instance& before = fused[size_t(at)];
      if (before.list != List::kForward || before.block != instance.block ||
          before.when != instance.when) {
        continue;
      }
      const bool last = std::all_of(instance.inputs.begin(), instance.inputs.end(),
                                    [&](Value other) { return maker[size_t(other.id)] <= at; });
      std::optional<Instance> both = last ? instance.op->Fused(before, instance) : std::nullopt;
      if (!both) continue;
      before = *std::move(both);
      return at;
    }
    return -1;
  };
  for (Instance& instance : program.instances) {
    int at = instance.list == List::kForward ? join(instance) : -1;
    if (at < 0) {
      at = int(fused.size());
      fused.push_back(std::move(instance));
    }
    for (Value output : fused[size_t(at)].outputs) maker[size_t(output.id)] = at;
  }
  program.instances = std::move(fused);
}

}  // namespace trainyard
