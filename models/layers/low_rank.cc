#include "models/layers/low_rank.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/program/low_rank.h"
#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

ParameterSpec Down(const ParameterSpec& weight, int64_t rank) {
  const int64_t in = weight.shape[1];
  return {.name = absl::StrCat(ModuleOf(weight.name), kLowRankDown),
          .shape = {rank, in},
          .shard = weight.shard.dim == 1 ? weight.shard : Shard::None(),
          .init = Init::Uniform(1 / std::sqrt(double(in))),
          .decay = true};
}

ParameterSpec Up(const ParameterSpec& weight, int64_t rank) {
  return {.name = absl::StrCat(ModuleOf(weight.name), kLowRankUp),
          .shape = {weight.shape[0], rank},
          .shard = weight.shard.dim == 0 ? weight.shard : Shard::None(),
          .decay = true};
}

// Adapters are narrow, so no recipe rounds their operands.
constexpr ProductKind kPlain = ProductKind::kPlain;

// Returns y plus the product of the narrow rows with b.
Value AddUp(Recorder& recorder, const ParameterSpec& weight, Value narrow, Value y) {
  const LowRank& adapter = recorder.adapter();
  narrow = ops::Scale(recorder, narrow, adapter.scale);
  const Value up = recorder.Parameter(Up(weight, adapter.rank));
  return ops::Add(recorder, y, ops::Linear(recorder, kPlain, narrow, up));
}

}  // namespace

Value AddToColumns(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x,
                   Value y) {
  if (!recorder.Adapts(weights.front())) return y;
  const LowRank& adapter = recorder.adapter();
  std::vector<ParameterSpec> down;
  for (const ParameterSpec& weight : weights) down.push_back(Down(weight, adapter.rank));
  const Value dropped = ops::Dropout(recorder, x, adapter.dropout, down.front().name);
  const Value own_rows = ops::Linear(recorder, kPlain, dropped, recorder.Parameters(down));
  const Value scaled = ops::Scale(recorder, own_rows, adapter.scale);
  std::vector<Value> parts = {ops::AllGather(recorder, scaled, kTensorAxes)};
  if (weights.size() > 1) {
    parts =
        ops::SplitColumns(recorder, parts[0], std::vector<int64_t>(weights.size(), adapter.rank));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const Value up = recorder.Parameter(Up(weights[i], adapter.rank));
    parts[i] = ops::Linear(recorder, kPlain, parts[i], up);
  }
  return ops::Add(recorder, y, ops::ConcatColumns(recorder, parts));
}

Value AddToRows(Recorder& recorder, const ParameterSpec& weight, Value x, Value y) {
  if (!recorder.Adapts(weight)) return y;
  const ParameterSpec down = Down(weight, recorder.adapter().rank);
  x = ops::DropoutOfColumns(recorder, x, recorder.adapter().dropout, down.name);
  const Value narrow =
      ops::LinearScatter(recorder, kPlain, x, recorder.Parameter(down), kTensorAxes);
  return AddUp(recorder, weight, narrow, y);
}

Value AdaptedLinear(Recorder& recorder, Value x, const ParameterSpec& weight, Value bias) {
  const Value y = ops::Linear(recorder, x, recorder.Parameter(weight), bias);
  if (!recorder.Adapts(weight)) return y;
  const ParameterSpec down = Down(weight, recorder.adapter().rank);
  x = ops::Dropout(recorder, x, recorder.adapter().dropout, down.name);
  return AddUp(recorder, weight, ops::Linear(recorder, kPlain, x, recorder.Parameter(down)), y);
}

}  // namespace trainyard
