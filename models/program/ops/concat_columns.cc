// Joins matrices side by side: the results of separate products that stand in for one
// (ColumnLinear). Splits the result of one product that stands in for several.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/copy_columns.h"
#include "models/program/binder.h"
#include "models/program/ops/column_parts.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// The columns of x [T, N] from `begin` on.
class TakeColumnsOp final : public NamedOp<TakeColumnsOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kColumns, kOutputs };
  explicit TakeColumnsOp(int64_t begin) : begin_(begin) {}
  absl::string_view name() const override { return "take_columns"; }
  std::string attributes() const override { return absl::StrCat("begin=", begin_); }
  // Counts only the columns that are taken.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return {.bytes = 2.0 * double(program.info(instance.outputs[kColumns]).bytes())};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor y = binder.tensor(instance.outputs[kColumns]);
    return binder.Kernel(CopyColumnsArgs{.x = binder.tensor(instance.inputs[kX]),
                                         .x_begin = begin_,
                                         .y = y,
                                         .y_begin = 0,
                                         .columns = y.shape.back()});
  }

 private:
  const int64_t begin_;
};

// All columns of any number of matrices of T rows, side by side.
class ConcatColumnsOp final : public Op {
 public:
  enum Output { kJoined };
  absl::string_view name() const override { return "concat_columns"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor y = binder.tensor(instance.outputs[kJoined]);
    std::vector<Call> calls;
    int64_t begin = 0;
    for (Value input : instance.inputs) {
      const Tensor x = binder.tensor(input);
      const int64_t columns = x.shape.back();
      calls.push_back(binder.Kernel(
          CopyColumnsArgs{.x = x, .x_begin = 0, .y = y, .y_begin = begin, .columns = columns}));
      begin += columns;
    }
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    std::vector<Value> grads;
    int64_t begin = 0;
    for (Value input : instance.inputs) {
      const ValueInfo info = recorder.info(input);
      Value& grad = grads.emplace_back();
      if (info.differentiable) {
        grad = recorder.Emit(std::make_shared<TakeColumnsOp>(begin), {output_grads[kJoined]},
                             {{.shape = info.shape,
                               .dtype = recorder.info(output_grads[kJoined]).dtype,
                               .name = "dx"}})[0];
      }
      begin += info.shape.back();
    }
    return grads;
  }
};

// The columns of x [T, N], divided into any number of parts.
class SplitColumnsOp final : public Op {
 public:
  absl::string_view name() const override { return "split_columns"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return CopyToParts(binder, instance);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& /*instance*/,
                              std::span<const Value> output_grads) const override {
    return {ConcatColumns(recorder, {output_grads.begin(), output_grads.end()})};
  }
};

}  // namespace

std::vector<Value> SplitColumns(Recorder& recorder, Value x, const std::vector<int64_t>& widths) {
  const ValueInfo info = recorder.info(x);
  CHECK(info.shape.back() == std::accumulate(widths.begin(), widths.end(), int64_t{0}))
      << "split_columns: " << info << " into " << widths.size() << " parts";
  std::vector<Recorder::Output> parts;
  for (const int64_t width : widths) {
    parts.push_back({.shape = {info.shape[0], width}, .dtype = info.dtype, .name = "part"});
  }
  return recorder.Emit(std::make_shared<SplitColumnsOp>(), {x}, parts);
}

Value ConcatColumns(Recorder& recorder, const std::vector<Value>& parts) {
  if (parts.size() == 1) return parts.front();
  const ValueInfo first = recorder.info(parts.front());
  int64_t columns = 0;
  for (Value part : parts) {
    const ValueInfo info = recorder.info(part);
    CHECK(info.shape.rank() == 2 && info.shape[0] == first.shape[0] && info.dtype == first.dtype)
        << "concat_columns: " << info << " beside " << first;
    columns += info.shape[1];
  }
  return recorder.Emit(
      std::make_shared<ConcatColumnsOp>(), parts,
      {{.shape = {first.shape[0], columns}, .dtype = first.dtype, .name = "product"}})[0];
}

}  // namespace trainyard::ops
