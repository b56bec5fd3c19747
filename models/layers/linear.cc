#include "models/layers/linear.h"

#include "models/layers/low_rank.h"
#include "models/program/ops/ops.h"

namespace trainyard {

ColumnLinear::ColumnLinear(const std::vector<LinearPart>& parts, int64_t in, bool bias, Init init) {
  for (const LinearPart& part : parts) {
    const AxisSet axes = part.key_value ? AxisSet(Axis::kTensor) : kTensorAxes;
    const Shard shard = Shard::Rows(axes, part.sections);
    weights_.push_back({.name = part.name + ".weight",
                        .shape = {part.width, in},
                        .shard = shard,
                        .init = init,
                        .decay = true});
    if (bias) {
      biases_.push_back({.name = part.name + ".bias", .shape = {part.width}, .shard = shard});
    }
  }
}

Value ColumnLinear::operator()(Recorder& recorder, Value x) const {
  const auto alike = [&](size_t i, size_t j) {
    return recorder.Frozen(weights_[i]) == recorder.Frozen(weights_[j]) &&
           recorder.Adapts(weights_[i]) == recorder.Adapts(weights_[j]) &&
           (biases_.empty() || recorder.Frozen(biases_[i]) == recorder.Frozen(biases_[j]));
  };
  std::vector<Value> products;
  for (size_t begin = 0, end = 0; begin < weights_.size(); begin = end) {
    while (end < weights_.size() && alike(begin, end)) ++end;
    const auto those = [&](const std::vector<ParameterSpec>& specs) {
      return std::vector<ParameterSpec>(specs.begin() + std::ptrdiff_t(begin),
                                        specs.begin() + std::ptrdiff_t(end));
    };
    const std::vector<ParameterSpec> weights = those(weights_);
    const ops::LinearWeight weight = ops::Weight(recorder, weights);
    const Value bias = biases_.empty() ? Value{} : recorder.Parameters(those(biases_));
    products.push_back(
        AdaptedColumns(recorder, weights, x, bias, [&](Value input, Value added, ProductKind kind) {
          return ops::GatherLinear(recorder, kind, {input, weight, added}, kTensorAxes);
        }));
  }
  return ops::ConcatColumns(recorder, products);
}

Value WholeLinear::operator()(Recorder& recorder, Value x) const {
  const ParameterSpec weight = {
      .name = name + ".weight", .shape = {out, in}, .init = init, .decay = true};
  return AdaptedLinear(recorder, x, weight,
                       recorder.Parameter({.name = name + ".bias", .shape = {out}}));
}

RowLinear::RowLinear(const RowLinearOptions& options)
    : weight_{.name = options.name + ".weight",
              .shape = {options.out, options.in},
              .shard = Shard::Columns(kTensorAxes),
              .init = options.init,
              .decay = true} {
  if (options.bias) bias_.push_back({.name = options.name + ".bias", .shape = {options.out}});
}

Value RowLinear::operator()(Recorder& recorder, Value x) const {
  const ops::LinearWeight weight = ops::Weight(recorder, {weight_});
  const Value bias = bias_.empty() ? Value{} : recorder.Parameters(bias_);
  const auto product = [&](Value input, Value added, ProductKind kind) {
    if (recorder.mesh().size(kTensorAxes) == 1) {
      return ops::Linear(recorder, kind, input, weight, added);
    }
    // The bias must be added once, so it is added to the sum over ranks.
    const Value y = ops::LinearScatter(recorder, kind, input, weight, kTensorAxes);
    return added.valid() ? ops::AddBias(recorder, y, added) : y;
  };
  return AdaptedRows(recorder, weight_, x, bias, product);
}

}  // namespace trainyard
