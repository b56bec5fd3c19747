#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// A pair of ops that can be done in one pass over memory. The only output of `before` is the first
// input of `after`.
struct Fusion {
  absl::string_view before;  // Names of ops.
  absl::string_view after;
  Instance (*fused)(const Instance& before, const Instance& after);
  // Null: all pairs of these ops can be fused.
  bool (*fits)(const Program& program, const Instance& before, const Instance& after) = nullptr;
};

bool RotatesWholeHeads(const Program& program, const Instance& norm, const Instance& rope) {
  const int64_t pairs = program.info(rope.inputs.back()).shape.back();  // Of a table.
  return 2 * pairs == program.info(norm.inputs.back()).shape.back();    // Of a gain.
}

// To add a fusion: a row here, a function in ops.h, and an op.
constexpr Fusion kFusions[] = {
    {"add", "rms_norm", ops::AddRmsNorm},
    {"add", "layer_norm", ops::AddLayerNorm},
    {"matmul", "gelu", ops::MatMulGelu},
    {"matmul_input_gradient", "gelu_backward", ops::MatMulGeluBackward},
    {"head_norm", "rope", ops::HeadNormRope, RotatesWholeHeads},
};

// Returns null if the two instances are not a pair of the table.
const Fusion* FindFusion(const Instance& before, const Instance& after) {
  const auto found =
      std::find_if(std::begin(kFusions), std::end(kFusions), [&](const Fusion& fusion) {
        return fusion.before == before.op->name() && fusion.after == after.op->name();
      });
  return found != std::end(kFusions) ? found : nullptr;
}

// The number of readers of each value, by id. The ends of chunks and of the program count as one
// reader each.
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
  // Whether `both` writes all outputs of `before` that other instances read.
  const auto keeps = [&](const Instance& both, const Instance& before) {
    return std::all_of(before.outputs.begin(), before.outputs.end(), [&](Value output) {
      return readers[size_t(output.id)] <= 1 ||
             std::count(both.outputs.begin(), both.outputs.end(), output) > 0;
    });
  };
  // Fuses `instance` with the maker of its first input, and returns the maker's place; -1 if the
  // two cannot be fused. The fused instance takes the maker's place, so all other inputs of
  // `instance` must be made before that place.
  const auto join = [&](const Instance& instance) {
    const int at = instance.inputs.empty() ? -1 : maker[size_t(instance.inputs.front().id)];
    if (at < 0) return -1;
    Instance& before = fused[size_t(at)];
    const Fusion* const fusion = FindFusion(before, instance);
    if (fusion == nullptr ||
        (fusion->fits != nullptr && !fusion->fits(program, before, instance)) ||
        before.list != list || before.block != instance.block || before.when != instance.when ||
        stay_apart(before, instance)) {
      return -1;
    }
    const bool last = std::all_of(instance.inputs.begin(), instance.inputs.end(),
                                  [&](Value other) { return maker[size_t(other.id)] <= at; });
    Instance both = fusion->fused(before, instance);
    CheckOperands(both);
    if (!last || !keeps(both, before)) return -1;
    before = std::move(both);
    return at;
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
