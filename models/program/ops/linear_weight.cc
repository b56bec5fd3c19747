// The weight of a linear layer, and of one in NF4 which rows and columns of which tensors it has.
// And the weights of experts.
#include <algorithm>
#include <utility>

#include "models/program/nf4.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// The rows that this rank has of the weights.
std::vector<Nf4Run> RunsOf(const Recorder& recorder, Value codes,
                           const std::vector<ParameterSpec>& weights) {
  std::vector<Nf4Run> runs;
  int64_t row = 0;
  for (const ParameterBox& box : BoxesOf(recorder.program().storage(codes), recorder.mesh())) {
    int64_t first_group = 0;
    auto weight = weights.begin();
    for (; weight->name != WeightInNf4(box.name); ++weight) {
      first_group += Nf4GroupsOf(weight->shape.elements()) + 1;
    }
    const int64_t row_blocks = weight->shape[1] / kNf4Block;
    const int64_t column = box.offset[1] * kNf4PerByte / kNf4Block;
    runs.push_back({.row = row,
                    .rows = box.shape[0],
                    .first_block = box.offset[0] * row_blocks + column,
                    .row_blocks = row_blocks,
                    .first_group = first_group,
                    .groups = Nf4GroupsOf(weight->shape.elements()) + 1});
    row += box.shape[0];
  }
  return runs;
}

struct Nf4Storages {
  Value codes, scales, groups;
};
Nf4Storages Declare(Recorder& recorder, const std::vector<ParameterSpec>& weights) {
  std::vector<ParameterSpec> codes, scales, groups;
  for (const ParameterSpec& weight : weights) {
    const Nf4Parts parts = PartsInNf4(weight);
    codes.push_back(parts.codes);
    scales.push_back(parts.scales);
    groups.push_back(parts.groups);
  }
  return {recorder.Parameters(codes), recorder.Parameters(scales), recorder.Parameters(groups)};
}

// A rank's part of a row must be whole blocks. Notes a weight of which it is not.
bool DividesBlocks(Recorder& recorder, const ParameterSpec& weight) {
  const int64_t ranks = weight.shard.dim == 1 ? recorder.mesh().size(weight.shard.axes) : 1;
  const int64_t part = weight.shape[1] / ranks;
  if (part % kNf4Block == 0) return false;
  const DividedBlock divided{.weight = weight.name,
                             .dim = DividedBlock::Dim::kInputs,
                             .block = kNf4Block,
                             .part = part,
                             .axes = weight.shard.dim == 1 ? weight.shard.axes : AxisSet()};
  std::vector<DividedBlock>& noted = recorder.mutable_program().divided_blocks;
  if (std::find(noted.begin(), noted.end(), divided) == noted.end()) noted.push_back(divided);
  return true;
}

}  // namespace

Shape ShapeOf(const Program& program, const LinearWeight& weight) {
  const Shape& shape = program.info(weight.value).shape;
  return weight.runs == nullptr ? shape : Shape{shape[0], shape[1] * kNf4PerByte};
}

LinearWeight Weight(Recorder& recorder, const std::vector<ParameterSpec>& weights) {
  if (!recorder.IsInNf4(weights.front())) return recorder.Weights(weights);
  for (const ParameterSpec& weight : weights) {
    // Such a program is refused later.
    if (DividesBlocks(recorder, weight)) return recorder.Weights(weights);
  }
  const Nf4Storages parts = Declare(recorder, weights);
  LinearWeight weight = parts.codes;
  weight.scales = parts.scales;
  weight.groups = parts.groups;
  weight.runs =
      std::make_shared<const std::vector<Nf4Run>>(RunsOf(recorder, weight.value, weights));
  return weight;
}

Shape ShapeOf(const Program& program, const ExpertWeight& weight) {
  const Shape& shape = program.info(weight.value).shape;
  return weight.in_nf4() ? shape.With(shape.rank() - 1, shape.back() * kNf4PerByte) : shape;
}

ExpertWeight WeightOfExperts(Recorder& recorder, const std::vector<ParameterSpec>& weights) {
  const ParameterSpec& first = weights.front();
  // A model whose experts have no whole blocks is refused later.
  if (!recorder.IsInNf4(first) || first.shape.back() % kNf4Block != 0) {
    return recorder.Parameters(weights);
  }
  const Nf4Storages parts = Declare(recorder, weights);
  ExpertWeight weight = parts.codes;
  weight.scales = parts.scales;
  weight.groups = parts.groups;
  return weight;
}

}  // namespace trainyard::ops
