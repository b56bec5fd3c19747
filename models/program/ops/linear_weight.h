// How an op has the weight of a linear layer among its inputs: the weight's value at a place of the
// op's choice, and of a weight in NF4 also the scales and groups, as the last two inputs. The op
// keeps the weight's runs.

#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {

class WeightInputs {
 public:
  static constexpr size_t kMost = 2;  // Inputs besides the weight's value.

  explicit WeightInputs(const LinearWeight& weight) : runs_(weight.runs) {}

  // Inputs besides the weight's value.
  size_t count() const { return runs_ == nullptr ? 0 : kMost; }
  // The inputs of the instance without these.
  size_t others(const Instance& instance) const { return instance.inputs.size() - count(); }
  void Append(const LinearWeight& weight, std::vector<Value>& inputs) const {
    if (count() > 0) inputs.insert(inputs.end(), {weight.scales, weight.groups});
  }
  // The weight whose value is input `at`.
  LinearWeight Of(const Instance& instance, size_t at) const {
    LinearWeight weight = instance.inputs[at];
    if (count() == 0) return weight;
    weight.scales = instance.inputs[others(instance)];
    weight.groups = instance.inputs.back();
    weight.runs = runs_;
    return weight;
  }
  Nf4Operand Bind(const Binder& binder, const Instance& instance) const {
    if (count() == 0) return {};
    return {.scales = binder.tensor(instance.inputs[others(instance)]),
            .groups = binder.tensor(instance.inputs.back()),
            .runs = *runs_};
  }
  // What a GPU keeps for one part of the weight and, before it, the workspace of its product.
  std::optional<Op::Kept> KeptOnGpu(const Program& program, const Nf4Product& product,
                                    int64_t columns) const {
    if (count() == 0) return std::nullopt;
    constexpr size_t kWorkspace = size_t{64} << 20;
    const size_t size = SizeOf(program.precision.frozen);
    const int64_t part = std::min(columns, Nf4ColumnsOnGpu(product, size));
    return Op::Kept{"part of a weight in NF4", kWorkspace + size_t(part * product.summed) * size};
  }

 private:
  std::shared_ptr<const std::vector<Nf4Run>> runs_;
};

}  // namespace trainyard::ops
