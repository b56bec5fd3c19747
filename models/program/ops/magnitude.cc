// The magnitudes of an adapted weight's rows. The weight's norms are computed in each micro-batch,
// where the weight is whole.
#include "kernels/norms/magnitude.h"

#include <algorithm>
#include <sstream>

#include "kernels/products/dequantize_nf4.h"
#include "kernels/products/low_rank_squares.h"
#include "models/program/binder.h"
#include "models/program/ops/linear_weight.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

class MagnitudeBackwardOp final : public NamedOp<MagnitudeBackwardOp> {
 public:
  enum Input { kDy, kZ, kGain, kInverse, kInputs };
  enum Output { kDz, kDoffset, kOutputs };
  absl::string_view name() const override { return "magnitude_backward"; }
  bool MayAlias(int output, int input) const override {
    return output == kDz && (input == kDy || input == kZ);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(MagnitudeBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                               .z = binder.tensor(instance.inputs[kZ]),
                                               .gain = binder.tensor(instance.inputs[kGain]),
                                               .inverse = binder.tensor(instance.inputs[kInverse]),
                                               .dz = binder.tensor(instance.outputs[kDz]),
                                               .doffset = binder.tensor(instance.outputs[kDoffset]),
                                               .write = binder.write(instance.outputs[kDoffset])});
  }
};

constexpr int64_t kRowsAtOnce = 256;  // Of a weight in NF4, whose numbers are in memory at a time.

// From kFirstUp on there are the matrices b [rows of a projection, rank], one for each projection.
// The ranks along `axes` have other columns of the weight. A weight in NF4 has memory for some rows
// of numbers.
class MagnitudeOp final : public Op {
 public:
  enum Input { kZ, kOffset, kWeight, kDown, kFirstUp };
  enum Output { kY, kGain, kInverse, kSquares, kNumbers };
  MagnitudeOp(double scale, const WeightInputs& weight, AxisSet axes)
      : scale_(scale), weight_(weight), axes_(axes) {}
  absl::string_view name() const override { return "magnitude"; }
  AxisSet group() const override { return axes_; }
  std::string attributes() const override {
    std::ostringstream out;
    out << "scale=" << scale_ << " axes=" << axes_;
    return out.str();
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (axes_.empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[kSquares]).bytes()),
                    program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor down = binder.tensor(instance.inputs[kDown]);
    const Tensor squares = binder.tensor(instance.outputs[kSquares]);
    const Tensor gain = binder.tensor(instance.outputs[kGain]);
    std::vector<Call> norms;
    int64_t row = 0, narrow = 0;
    for (size_t i = kFirstUp; i < weight_.others(instance); ++i) {
      const Tensor up = binder.tensor(instance.inputs[i]);
      const int64_t rows = up.shape[0], rank = up.shape.back();
      const int64_t at_once = weight_.count() == 0 ? rows : std::min(rows, kRowsAtOnce);
      for (int64_t first = 0; first < rows; first += at_once) {
        const int64_t count = std::min(at_once, rows - first);
        norms.push_back(Squares(binder, instance, row + first,
                                {.w = {},
                                 .a = RowsOf(down, narrow, rank),
                                 .b = RowsOf(up, first, count),
                                 .scale = scale_,
                                 .squares = RowsOf(squares, row + first, count)}));
      }
      row += rows;
      narrow += rank;
    }
    Call gains =
        binder.Kernel(MagnitudeGainArgs{.squares = squares,
                                        .offset = binder.tensor(instance.inputs[kOffset]),
                                        .gain = gain,
                                        .inverse = binder.tensor(instance.outputs[kInverse])});
    Call scale = binder.Kernel(MagnitudeForwardArgs{.z = binder.tensor(instance.inputs[kZ]),
                                                    .gain = gain,
                                                    .y = binder.tensor(instance.outputs[kY])});
    Collective* const collective = axes_.empty() ? nullptr : &binder.collective(axes_);
    return [norms = std::move(norms), collective, squares, gains = std::move(gains),
            scale = std::move(scale)](Exec& exec) {
      for (const Call& norm : norms) norm(exec);
      if (collective != nullptr) collective->AllReduceSum(squares);
      gains(exec);
      scale(exec);
    };
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value z = instance.inputs[kZ];
    const ValueInfo info = recorder.info(z);
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<MagnitudeBackwardOp>(),
                      {output_grads[kY], z, instance.outputs[kGain], instance.outputs[kInverse]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dz"},
                       recorder.GradientOutput(instance.inputs[kOffset])});
    std::vector<Value> of_inputs(instance.inputs.size());
    of_inputs[kZ] = grads[MagnitudeBackwardOp::kDz];
    return of_inputs;
  }

 private:
  // Of the weight's rows from `row` on, of which `args` has all but the weight.
  Call Squares(const Binder& binder, const Instance& instance, int64_t row,
               LowRankSquaresArgs args) const {
    const Tensor weight = binder.tensor(instance.inputs[kWeight]);
    const int64_t rows = args.squares.shape[0];
    if (weight_.count() == 0) {
      args.w = RowsOf(weight, row, rows);
      return binder.Kernel(args);
    }
    const Tensor numbers = RowsOf(binder.tensor(instance.outputs[kNumbers]), 0, rows);
    args.w = numbers;
    std::vector<Call> calls;
    ForEachRun({.codes = weight, .operand = weight_.Bind(binder, instance), .row = row}, numbers,
               [&](const DequantizeNf4Args& part) { calls.push_back(binder.Kernel(part)); });
    calls.push_back(binder.Kernel(args));
    return InOrder(std::move(calls));
  }

  const double scale_;
  const WeightInputs weight_;
  const AxisSet axes_;
};

}  // namespace

Value Magnitude(Recorder& recorder, Value z, const AdaptedWeight& of, double scale, AxisSet axes) {
  const ValueInfo info = recorder.info(z);
  const int64_t columns = info.shape[1];
  const WeightInputs weight(of.weight);
  std::vector<Value> inputs = {z, of.offset, of.weight.value, of.down};
  inputs.insert(inputs.end(), of.up.begin(), of.up.end());
  weight.Append(of.weight, inputs);
  const DType statistic = recorder.precision().statistic;
  using Output = Recorder::Output;
  std::vector<Output> outputs = {{.shape = info.shape, .dtype = info.dtype, .name = "magnitude"},
                                 Output::Memory("gain", {columns}, statistic),
                                 Output::Memory("inverse", {columns}, statistic),
                                 Output::Memory("squares", {columns, 2}, statistic)};
  if (weight.count() > 0) {
    const Shape whole = ShapeOf(recorder.program(), of.weight);
    outputs.push_back(Output::Memory("numbers", {std::min(whole[0], kRowsAtOnce), whole[1]},
                                     recorder.precision().frozen));
  }
  return recorder.Emit(
      std::make_shared<MagnitudeOp>(scale, weight, axes & recorder.mesh().active()),
      std::move(inputs), outputs)[MagnitudeOp::kY];
}

}  // namespace trainyard::ops
