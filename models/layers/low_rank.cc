#include "models/layers/low_rank.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/program/low_rank.h"
#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

Init InitOfDown(int64_t in) { return Init::Uniform(1 / std::sqrt(double(in))); }

ParameterSpec Down(const ParameterSpec& weight, int64_t rank) {
  const int64_t in = weight.shape[1];
  return {.name = absl::StrCat(ModuleOf(weight.name), kLowRankDown),
          .shape = {rank, in},
          .shard = weight.shard.dim == 1 ? weight.shard : Shard::None(),
          .init = InitOfDown(in),
          .decay = true};
}

Shard ShardOfRows(const ParameterSpec& weight) {
  return weight.shard.dim == 0 ? weight.shard : Shard::None();
}

ParameterSpec Up(const ParameterSpec& weight, int64_t rank) {
  return {.name = absl::StrCat(ModuleOf(weight.name), kLowRankUp),
          .shape = {weight.shape[0], rank},
          .shard = ShardOfRows(weight),
          .decay = true};
}

ParameterSpec Offset(const ParameterSpec& weight) {
  return {.name = absl::StrCat(ModuleOf(weight.name), kMagnitudeOffset),
          .shape = {weight.shape[0]},
          .shard = ShardOfRows(weight)};
}

// Adapters are narrow, so no recipe rounds their operands.
constexpr ProductKind kPlain = ProductKind::kPlain;

// What is adapted: the weights whose rows one product has, one after another.
struct Layer {
  Recorder& recorder;
  const std::vector<ParameterSpec>& weights;
  const LayerProduct& product;
  Value bias;
  AxisSet input_axes = {};  // The inputs of the weights are divided over these axes.

  const LowRank& adapter() const { return recorder.adapter(); }
  std::vector<ParameterSpec> down() const {
    std::vector<ParameterSpec> specs;
    for (const ParameterSpec& weight : weights) specs.push_back(Down(weight, adapter().rank));
    return specs;
  }
  Value up(size_t i) const { return recorder.Parameter(Up(weights[i], adapter().rank)); }
  Value WithMagnitudes(Value z) const {
    ops::AdaptedWeight of = {};
    of.weight = ops::Weight(recorder, weights);
    of.down = recorder.Parameters(down());
    std::vector<ParameterSpec> offsets;
    for (size_t i = 0; i < weights.size(); ++i) {
      of.up.push_back(up(i));
      offsets.push_back(Offset(weights[i]));
    }
    of.offset = recorder.Parameters(offsets);
    return ops::Magnitude(recorder, z, of, adapter().scale, input_axes);
  }
};

// Returns the outputs of an adapted layer. `drop` returns what training leaves of x, and `add` adds
// the adapter's product with it to outputs.
template <typename Drop, typename Add>
Value Adapt(const Layer& layer, Value x, const Drop& drop, const Add& add) {
  Recorder& recorder = layer.recorder;
  const bool magnitudes = layer.adapter().magnitudes;
  const bool drops = layer.adapter().dropout > 0 && recorder.program().training;
  const bool bias_last = magnitudes && !drops;
  const Value y = layer.product(x, bias_last ? Value{} : layer.bias, recorder.layer_kind());
  if (!magnitudes) return add(y, drop());
  if (!drops) {
    const Value scaled = layer.WithMagnitudes(add(y, x));
    return layer.bias.valid() ? ops::AddBias(recorder, scaled, layer.bias) : scaled;
  }
  // As in PEFT, magnitudes multiply the weight's product with what is left of x.
  const Value left = drop();
  const Value of_left = layer.product(left, {}, kPlain);
  const Value scaled = layer.WithMagnitudes(add(of_left, left));
  return ops::Add(recorder, ops::Add(recorder, y, ops::Scale(recorder, of_left, -1)), scaled);
}

}  // namespace

Value AdaptedColumns(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x,
                     Value bias, const LayerProduct& product) {
  if (!recorder.Adapts(weights.front())) return product(x, bias, recorder.layer_kind());
  const Layer layer{recorder, weights, product, bias};
  const LowRank& adapter = recorder.adapter();
  const auto drop = [&] {
    return ops::Dropout(recorder, x, adapter.dropout, Down(weights[0], adapter.rank).name);
  };
  return Adapt(layer, x, drop, [&](Value y, Value left) {
    const Value down = recorder.Parameters(layer.down());
    const Value own_rows = ops::Linear(recorder, kPlain, left, down);
    const Value scaled = ops::Scale(recorder, own_rows, adapter.scale);
    std::vector<Value> up;
    for (size_t i = 0; i < weights.size(); ++i) up.push_back(layer.up(i));
    return ops::AddThinProducts(recorder, y, ops::AllGather(recorder, scaled, kTensorAxes), up);
  });
}

Value AdaptedRows(Recorder& recorder, const ParameterSpec& weight, Value x, Value bias,
                  const LayerProduct& product) {
  if (!recorder.Adapts(weight)) return product(x, bias, recorder.layer_kind());
  const std::vector<ParameterSpec> weights = {weight};
  const Layer layer{recorder, weights, product, bias, weight.shard.axes};
  const LowRank& adapter = recorder.adapter();
  const ParameterSpec down = Down(weight, adapter.rank);
  const bool divided = weight.shard.dim == 1;
  const auto drop = [&] {
    return divided ? ops::DropoutOfColumns(recorder, x, adapter.dropout, down.name)
                   : ops::Dropout(recorder, x, adapter.dropout, down.name);
  };
  return Adapt(layer, x, drop, [&](Value y, Value left) {
    const Value matrix = recorder.Parameter(down);
    const Value narrow = divided ? ops::LinearScatter(recorder, kPlain, left, matrix, kTensorAxes)
                                 : ops::Linear(recorder, kPlain, left, matrix);
    const Value scaled = ops::Scale(recorder, narrow, adapter.scale);
    return ops::AddThinProducts(recorder, y, scaled, {layer.up(0)});
  });
}

ops::ExpertAdapter AdapterOfExperts(Recorder& recorder, const std::vector<ParameterSpec>& weights) {
  const ParameterSpec& first = weights.front();
  if (!recorder.Adapts(first)) return {};
  const LowRank& adapter = recorder.adapter();
  CHECK(!adapter.magnitudes && adapter.dropout == 0)
      << first.name << ": an adapter of experts with magnitudes or dropout";
  int64_t outputs = 0;
  for (const ParameterSpec& weight : weights) {
    CHECK(weight.stacked && AdaptedLayerOf(weight) == AdaptedLayerOf(first))
        << weight.name << " has no adapter in common with " << first.name;
    outputs += weight.shape[1];
  }
  const int64_t experts = first.shape[0], in = first.shape[2];
  const auto matrix = [&](const char* ending, const Shape& shape, Init init) {
    return recorder.Parameter({.name = absl::StrCat(AdaptedLayerOf(first), ending),
                               .shape = shape,
                               .shard = first.shard,
                               .init = init,
                               .decay = true,
                               .stacked = true});
  };
  return {.down = matrix(kLowRankDown, {experts, adapter.rank, in}, InitOfDown(in)),
          .up = matrix(kLowRankUp, {experts, outputs, adapter.rank}, Init::Zeros())};
}

Value AdaptedLinear(Recorder& recorder, Value x, const ParameterSpec& weight, Value bias) {
  return AdaptedRows(recorder, weight, x, bias, [&](Value input, Value added, ProductKind kind) {
    return ops::Linear(recorder, kind, input, ops::Weight(recorder, {weight}), added);
  });
}

}  // namespace trainyard
