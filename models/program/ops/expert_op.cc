#include "models/program/ops/expert_op.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "kernels/elementwise/scale.h"
#include "kernels/elementwise/scaled_squared_relu.h"
#include "kernels/elementwise/scaled_swiglu.h"
#include "models/program/product.h"

namespace trainyard::ops {

using Row = ExpertDispatch::Row;

std::vector<Recorder::Output> Joined(std::vector<Recorder::Output> a,
                                     const std::vector<Recorder::Output>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void BoundAdapter::Narrow(const Binder& binder, const Tensor& x, std::vector<Call>& calls) const {
  calls.push_back(BindProduct(
      binder,
      {.role = ProductRole::kForward, .a = x, .b = down, .offsets = offsets, .out = narrow}));
  if (scale == 1) return;
  calls.push_back(binder.Kernel(ScaleArgs{.x = narrow, .y = narrow, .factor = scale}));
}

void BoundAdapter::AddOutputs(const Binder& binder, const Tensor& y,
                              std::vector<Call>& calls) const {
  calls.push_back(BindProduct(binder, {.role = ProductRole::kForward,
                                       .a = narrow,
                                       .b = up,
                                       .offsets = offsets,
                                       .out = y,
                                       .write = Write::kAdd}));
}

void BoundAdapter::Backward(const Binder& binder, const Tensor& dy, const Tensor& x,
                            const Gradients& gradients, std::vector<Call>& calls) const {
  calls.push_back(BindProduct(binder, {.role = ProductRole::kWeightGradient,
                                       .a = dy,
                                       .b = narrow,
                                       .offsets = offsets,
                                       .out = gradients.up,
                                       .write = gradients.write_up}));
  calls.push_back(BindProduct(
      binder,
      {.role = ProductRole::kInputGradient, .a = dy, .b = up, .offsets = offsets, .out = narrow}));
  if (scale != 1) {
    calls.push_back(binder.Kernel(ScaleArgs{.x = narrow, .y = narrow, .factor = scale}));
  }
  calls.push_back(BindProduct(binder, {.role = ProductRole::kWeightGradient,
                                       .a = narrow,
                                       .b = x,
                                       .offsets = offsets,
                                       .out = gradients.down,
                                       .write = gradients.write_down}));
}

void BoundAdapter::AddInputGradient(const Binder& binder, const Tensor& dx,
                                    std::vector<Call>& calls) const {
  calls.push_back(BindProduct(binder, {.role = ProductRole::kInputGradient,
                                       .a = narrow,
                                       .b = down,
                                       .offsets = offsets,
                                       .out = dx,
                                       .write = Write::kAdd}));
}

std::vector<Call> Arrival::Calls(const Binder& binder, ExpertDispatch& dispatch) const {
  std::vector<Call> calls = {dispatch.ToExperts(binder, Row::kToken, x, rows),
                             dispatch.ToExperts(binder, Row::kSlot, weights, row_weights)};
  const ScaledOperand input =
      rounder(Rounded::kFirstInput, rows, rounded_rows, dispatch.offsets(), calls);
  calls.push_back(BindProduct(binder, {.role = ProductRole::kForward,
                                       .a = input.values,
                                       .b = gate_up.values,
                                       .a_scales = input.scales,
                                       .b_scales = gate_up.scales,
                                       .offsets = dispatch.offsets(),
                                       .out = up,
                                       .epilogue = {.bias = gate_up_bias},
                                       .nf4 = gate_up.nf4}));
  if (adapter.valid()) {
    adapter.Narrow(binder, rows, calls);
    adapter.AddOutputs(binder, up, calls);
  }
  return calls;
}

void RunAll(const std::vector<Call>& calls, Exec& exec) {
  for (const Call& call : calls) call(exec);
}

std::string ExpertOp::attributes() const {
  std::ostringstream out;
  out << "experts=" << shape_.experts << " top_k=" << shape_.top_k << " axes=" << shape_.axes
      << " rows=" << shape_.bound;
  if (!form_.gated) out << " squared_relu";
  if (form_.bias) out << " bias";
  if (form_.nf4) out << " nf4";
  if (form_.swiglu_limit > 0) out << " swiglu_limit=" << form_.swiglu_limit;
  if (form_.first_adapter) out << " first_adapter=" << form_.rank;
  if (form_.second_adapter) out << " second_adapter=" << form_.rank;
  if (form_.rank > 0) out << " adapter_scale=" << form_.adapter_scale;
  if (form_.rounding) {
    out << " rounded=" << form_.rounding->input << ',' << form_.rounding->weight << ','
        << form_.rounding->gradient;
    if (form_.has_histories()) out << " history=" << form_.rounding->history;
    if (form_.rounds_lines()) out << " of_lines";
  }
  return out.str();
}

std::optional<Op::Kept> ExpertOp::KeptOnGpu(const Program& program,
                                            const Instance& /*instance*/) const {
  if (!form_.nf4) return std::nullopt;
  const size_t size = SizeOf(program.precision.frozen);
  size_t bytes = 0;
  for (const auto& [width, inner] :
       {std::pair(form_.up_width(), shape_.width), std::pair(shape_.width, form_.ffn)}) {
    for (const auto& [columns, summed] : {std::pair(width, inner), std::pair(inner, width)}) {
      const Nf4GroupPart part = Nf4GroupsOnGpu({.rows = shape_.bound,
                                                .groups = shape_.local_experts(),
                                                .columns = columns,
                                                .summed = summed},
                                               size);
      bytes = std::max(bytes, size_t(part.groups * part.columns * summed) * size);
    }
  }
  return Kept{"part of a weight in NF4", bytes};
}

Nf4Operand ExpertOp::Nf4Of(const Tensor& scales, const Tensor& groups, int matrices) {
  if (scales.data == nullptr) return {};
  return {.scales = scales, .groups = groups, .tensors = matrices};
}

Communication ExpertOp::Travel(const Precision& precision, int64_t rows) const {
  const auto sent = [&](int64_t elements, DType dtype) {
    return SentBytes(CollectiveOp::kAllToAll, elements * int64_t(SizeOf(dtype)), int(shape_.ranks));
  };
  return {.op = CollectiveOp::kAllToAll,
          .calls = rows + 1,
          .bytes = rows * sent(shape_.slots() * shape_.width, precision.activation) +
                   sent(shape_.slots(), precision.statistic),
          .exact = false};
}

Communication ExpertOp::Counts() const {
  const int64_t bytes = shape_.ranks * shape_.experts * int64_t(SizeOf(DType::kI32));
  return CallsOf(CollectiveOp::kAllGather, 1, bytes, int(shape_.ranks));
}

double ExpertOp::FlopsOf(int matrices) const {
  return ProductFlops(shape_.slots(), shape_.width * form_.ffn) * matrices;
}

double ExpertOp::FlopsOfFirstAdapter() const {
  if (!form_.first_adapter) return 0;
  return ProductFlops(shape_.slots(), form_.rank * (shape_.width + form_.up_width()));
}

double ExpertOp::FlopsOfAdapters() const {
  double flops = FlopsOfFirstAdapter();
  if (form_.second_adapter) {
    flops += ProductFlops(shape_.slots(), form_.rank * (form_.ffn + shape_.width));
  }
  return flops;
}

double ExpertOp::BytesOfRounding(double bytes, bool looks_for_amax) const {
  if (!form_.rounding) return 0;
  return looks_for_amax ? 2 * bytes : bytes;
}

std::shared_ptr<ExpertDispatch> ExpertOp::DispatchOf(const Binder& binder,
                                                     std::span<const Value> kept,
                                                     std::span<const Value> memory) const {
  const auto tensors = [&](std::span<const Value> values) {
    std::vector<Tensor> bound;
    for (const Value value : values) bound.push_back(binder.tensor(value));
    return bound;
  };
  return std::make_shared<ExpertDispatch>(binder, shape_, tensors(kept), tensors(memory));
}

std::shared_ptr<ExpertDispatch> ExpertOp::DispatchOf(const Binder& binder, const Instance& instance,
                                                     size_t first) const {
  const std::span<const Value> values = std::span(instance.outputs).subspan(first);
  return DispatchOf(binder, values.first(num_kept()), values.subspan(num_kept()));
}

Call ExpertOp::Activate(const Binder& binder, Tensor x, Tensor w, Tensor count, Tensor y) const {
  if (!form_.gated) {
    return binder.Kernel(ScaledSquaredReluForwardArgs{.x = x, .w = w, .count = count, .y = y});
  }
  return binder.Kernel(
      ScaledSwiGluForwardArgs{.x = x, .w = w, .count = count, .y = y, .limit = form_.swiglu_limit});
}

Call ExpertOp::ActivateBackward(const Binder& binder, Tensor dy, Tensor x, Tensor w,
                                Tensor count) const {
  if (!form_.gated) {
    return binder.Kernel(
        ScaledSquaredReluBackwardArgs{.dy = dy, .x = x, .w = w, .count = count, .dx = x, .dw = w});
  }
  return binder.Kernel(ScaledSwiGluBackwardArgs{
      .dy = dy, .x = x, .w = w, .count = count, .dx = x, .dw = w, .limit = form_.swiglu_limit});
}

}  // namespace trainyard::ops
