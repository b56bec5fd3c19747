// The weight of a product, and how one in NF4 becomes numbers: just before the product of the
// forward pass, and again before that of the backward pass (Op::is_made_again).
#include "kernels/products/dequantize_nf4.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/nf4.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// Some rows of the storage, which follow one another in one weight.
struct RunOfRows {
  int64_t row, rows;            // In the storage.
  int64_t first_block;          // Of the whole weight's blocks.
  int64_t row_blocks;           // Of a row of the whole weight.
  int64_t first_group, groups;  // Of the weights' groups and means.
};

class DequantizeNf4Op final : public NamedOp<DequantizeNf4Op> {
 public:
  enum Input { kCodes, kScales, kGroups, kInputs };
  enum Output { kWeight, kOutputs };
  explicit DequantizeNf4Op(std::vector<RunOfRows> runs) : runs_(std::move(runs)) {}
  absl::string_view name() const override { return "dequantize_nf4"; }
  bool is_made_again() const override { return true; }
  std::string attributes() const override {
    std::string text = "rows@block:";
    for (const RunOfRows& run : runs_) {
      absl::StrAppend(&text, " ", run.rows, "@", run.first_block);
    }
    return text;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor codes = binder.tensor(instance.inputs[kCodes]);
    const Tensor scales = binder.tensor(instance.inputs[kScales]);
    const Tensor groups = binder.tensor(instance.inputs[kGroups]);
    const Tensor weight = binder.tensor(instance.outputs[kWeight]);
    std::vector<Call> calls;
    for (const RunOfRows& run : runs_) {
      calls.push_back(
          binder.Kernel(DequantizeNf4Args{.codes = RowsOf(codes, run.row, run.rows),
                                          .scales = RowsOf(scales, run.row, run.rows),
                                          .groups = RowsOf(groups, run.first_group, run.groups),
                                          .first_block = run.first_block,
                                          .row_blocks = run.row_blocks,
                                          .y = RowsOf(weight, run.row, run.rows)}));
    }
    if (calls.size() == 1) return calls.front();
    return [calls = std::move(calls)](Exec& exec) {
      for (const Call& call : calls) call(exec);
    };
  }

 private:
  const std::vector<RunOfRows> runs_;
};

// The rows that this rank has of the weights.
std::vector<RunOfRows> RunsOf(const Recorder& recorder, Value codes,
                              const std::vector<ParameterSpec>& weights) {
  std::vector<RunOfRows> runs;
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

Value Weight(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x) {
  if (!recorder.IsInNf4(weights.front())) return recorder.Weights(weights);
  for (const ParameterSpec& weight : weights) {
    // Such a program is refused later.
    if (DividesBlocks(recorder, weight)) return recorder.Weights(weights);
  }
  Value& made = recorder.dequantized()[{recorder.block(), weights.front().name}];
  if (made.valid()) return made;
  std::vector<ParameterSpec> codes, scales, groups;
  for (const ParameterSpec& weight : weights) {
    const Nf4Parts parts = PartsInNf4(weight);
    codes.push_back(parts.codes);
    scales.push_back(parts.scales);
    groups.push_back(parts.groups);
  }
  const Value of_codes = recorder.Parameters(codes);
  const Shape packed = recorder.info(of_codes).shape;
  made = recorder.Emit(std::make_shared<DequantizeNf4Op>(RunsOf(recorder, of_codes, weights)),
                       {of_codes, recorder.Parameters(scales), recorder.Parameters(groups)},
                       {{.shape = {packed[0], packed[1] * kNf4PerByte},
                         .dtype = recorder.precision().frozen,
                         .name = absl::StrCat(weights.front().name, " from NF4"),
                         .varying = recorder.info(x).varying}})[DequantizeNf4Op::kWeight];
  return made;
}

}  // namespace trainyard::ops
