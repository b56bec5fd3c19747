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

}  // namespace

Value AddToColumns(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x,
                   Value y) {
  if (!recorder.Adapts(weights.front())) return y;
  const LowRank& adapter = recorder.adapter();
  std::vector<ParameterSpec> down;
  for (const ParameterSpec& weight : weights) down.push_back(Down(weight, adapter.rank));
  Value narrow = ops::Linear(recorder, x, recorder.Parameters(down));
  narrow = ops::Scale(recorder, narrow, adapter.scale);
  narrow = ops::AllGather(recorder, narrow, kTensorAxes);
  std::vector<Value> parts = {narrow};
  if (weights.size() > 1) {
    parts = ops::SplitColumns(recorder, narrow, std::vector<int64_t>(weights.size(), adapter.rank));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    parts[i] = ops::Linear(recorder, parts[i], recorder.Parameter(Up(weights[i], adapter.rank)));
  }
  return ops::Add(recorder, y, ops::ConcatColumns(recorder, parts));
}

Value AddToRows(Recorder& recorder, const ParameterSpec& weight, Value x, Value y) {
  if (!recorder.Adapts(weight)) return y;
  const LowRank& adapter = recorder.adapter();
  Value narrow =
      ops::LinearScatter(recorder, x, recorder.Parameter(Down(weight, adapter.rank)), kTensorAxes);
  narrow = ops::Scale(recorder, narrow, adapter.scale);
  return ops::Add(recorder, y,
                  ops::Linear(recorder, narrow, recorder.Parameter(Up(weight, adapter.rank))));
}

Value AdaptedLinear(Recorder& recorder, Value x, const ParameterSpec& weight, Value bias) {
  const Value y = ops::Linear(recorder, x, recorder.Parameter(weight), bias);
  if (!recorder.Adapts(weight)) return y;
  const LowRank& adapter = recorder.adapter();
  Value narrow = ops::Linear(recorder, x, recorder.Parameter(Down(weight, adapter.rank)));
  narrow = ops::Scale(recorder, narrow, adapter.scale);
  return ops::Add(recorder, y,
                  ops::Linear(recorder, narrow, recorder.Parameter(Up(weight, adapter.rank))));
}

}  // namespace trainyard
