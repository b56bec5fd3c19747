#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// How many read each value, by id. The ends of chunks and of the program count as one each.
std::vector<int> CountReaders(const Program& program) {
  std::vector<int> readers(program.values.size());
  const auto add = [&](Value value) {
    if (value.valid()) ++readers[size_t(value.id)];
  };
  for (const auto& [name, value] : program.outputs) add(value);
  for (const Chunk& chunk : program.chunks) {
    for (const Crossing& sent : chunk.sent) add(sent.value);
    for (const Crossing& received : chunk.received) add(received.gradient);
  }
  for (const Instance& instance : program.instances) {
    for (Value input : instance.inputs) add(input);
  }
  return readers;
}

}  // namespace

void Fuse(Program& program, List list, const RecomputeOptions& recompute) {
  const std::vector<int> readers = CountReaders(program);
  std::vector<Instance> fused;
  std::vector<int> maker(program.values.size(), -1);  // By value id: index in `fused`.
  const auto stay_apart = [&](const Instance& before, const Instance& instance) {
    return recompute.norms_and_activations && instance.op->is_cheap() &&
           before.op->CostOf(program, before).flops > 0;
  };
  // Nothing is lost that somebody else reads.
  const auto keeps = [&](const Instance& both, const Instance& before) {
    return std::all_of(before.outputs.begin(), before.outputs.end(), [&](Value output) {
      return readers[size_t(output.id)] <= 1 ||
             std::count(both.outputs.begin(), both.outputs.end(), output) > 0;
    });
  };
  // `instance` and one of those before, in the place of the latter: nothing else that it reads may
  // be made after that.
  const auto join = [&](const Instance& instance) {
    for (Value input : instance.inputs) {
      const int at = maker[size_t(input.id)];
      if (at < 0) continue;
      Instance& before = fused[size_t(at)];
      if (before.list != list || before.block != instance.block || before.when != instance.when ||
          stay_apart(before, instance)) {
        continue;
      }
      const bool last = std::all_of(instance.inputs.begin(), instance.inputs.end(),
                                    [&](Value other) { return maker[size_t(other.id)] <= at; });
      std::optional<Instance> both = last ? instance.op->Fused(before, instance) : std::nullopt;
      if (!both || !keeps(*both, before)) continue;
      before = *std::move(both);
      return at;
    }
    return -1;
  };
  for (Instance& instance : program.instances) {
    int at = instance.list == list ? join(instance) : -1;
    if (at < 0) {
      at = int(fused.size());
      fused.push_back(std::move(instance));
    }
    for (Value output : fused[size_t(at)].outputs) maker[size_t(output.id)] = at;
  }
  program.instances = std::move(fused);
}

}  // namespace trainyard
