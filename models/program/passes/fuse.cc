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

// A pair of ops that can be done in one pass over memory. The only output of `before` is an input
// of `after`.
struct Fusion {
  absl::string_view before;  // Names of ops.
  absl::string_view after;
  Instance (*fused)(const Instance& before, const Instance& after);
  // Null: all pairs of these ops can be fused.
  bool (*fits)(const Program& program, const Instance& before, const Instance& after) = nullptr;
  bool last = false;  // The last input of `after`, in place of the first one.
};

bool RotatesWholeHeads(const Program& program, const Instance& norm, const Instance& rope) {
  const int64_t pairs = program.info(rope.inputs.back()).shape.back();  // Of a table.
  return 2 * pairs == program.info(norm.inputs.back()).shape.back();    // Of a gain.
}

// No kernel computes GELU of a product with a weight in NF4.
bool HasNumbers(const Program& program, const Instance& product, const Instance& /*gelu*/) {
  return std::none_of(product.inputs.begin(), product.inputs.end(),
                      [&](Value input) { return program.info(input).dtype == DType::kU8; });
}

// Beside a frozen weight there is mostly an adapter, whose gradient is the other addend. Jobs
// without frozen weights keep the bits that they had.
bool IsOfFrozenWeight(const Program& program, const Instance& product, const Instance& /*add*/) {
  return std::any_of(product.inputs.begin(), product.inputs.end(), [&](Value input) {
    const ValueInfo& info = program.info(input);
    return info.kind == ValueKind::kParameter && !info.differentiable;
  });
}

// To add a fusion: a row here, a function in ops.h, and an op.
constexpr Fusion kFusions[] = {
    {"add", "rms_norm", ops::AddRmsNorm},
    {"add", "layer_norm", ops::AddLayerNorm},
    {"matmul", "gelu", ops::MatMulGelu, HasNumbers},
    {"matmul_input_gradient", "gelu_backward", ops::MatMulGeluBackward, HasNumbers},
    {"matmul_input_gradient", "add", ops::MatMulAdd, IsOfFrozenWeight},
    {"matmul_input_gradient", "add", ops::MatMulAdd, IsOfFrozenWeight, /*last=*/true},
    {"head_norm", "rope", ops::HeadNormRope, RotatesWholeHeads},
};

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
  // Returns the place of the instance with which the fusion joins `instance`; -1: there is none.
  const auto partner = [&](const Fusion& fusion, const Instance& instance) {
    if (fusion.after != instance.op->name()) return -1;
    const Value input = fusion.last ? instance.inputs.back() : instance.inputs.front();
    const int at = maker[size_t(input.id)];
    if (at < 0 || fusion.before != fused[size_t(at)].op->name()) return -1;
    const Instance& before = fused[size_t(at)];
    const bool fits = fusion.fits == nullptr || fusion.fits(program, before, instance);
    const bool together = before.list == list && before.block == instance.block &&
                          before.when == instance.when && !stay_apart(before, instance);
    return fits && together ? at : -1;
  };
  // Fuses `instance` with the maker of one of its inputs, and returns the maker's place; -1 if the
  // two cannot be fused. The fused instance takes the maker's place, so all other inputs of
  // `instance` must be made before that place.
  const auto join = [&](const Instance& instance) {
    for (const Fusion& fusion : kFusions) {
      const int at = partner(fusion, instance);
      if (at < 0) continue;
      Instance& before = fused[size_t(at)];
      const bool last = std::all_of(instance.inputs.begin(), instance.inputs.end(),
                                    [&](Value other) { return maker[size_t(other.id)] <= at; });
      Instance both = fusion.fused(before, instance);
      CheckOperands(both);
      if (!last || !keeps(both, before)) continue;
      before = std::move(both);
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
