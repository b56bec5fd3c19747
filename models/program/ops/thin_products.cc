// The second products of low-rank adapters, and their gradients. All projections of one layer are
// one op, which works on their columns where they lie.
//
//   y[:, p] += narrow[:, p] up_p^T     dnarrow[:, p] = dy[:, p] up_p
//   dup_p = dy[:, p]^T narrow[:, p]
//
// for each projection p, where [:, p] are its columns.
#include "models/program/binder.h"
#include "models/program/ops/in_place.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

// The columns of a projection.
struct Projection {
  Value up;
  ColumnRange wide, narrow;
};

// `ups` are matrices [N, R].
std::vector<Projection> ProjectionsOf(std::span<const Value> ups,
                                      const std::function<Shape(Value)>& shape_of) {
  std::vector<Projection> projections;
  int64_t wide = 0, narrow = 0;
  for (const Value up : ups) {
    const Shape shape = shape_of(up);
    projections.push_back({up, {wide, shape[0]}, {narrow, shape[1]}});
    wide += shape[0];
    narrow += shape[1];
  }
  return projections;
}
std::vector<Projection> ProjectionsOf(const Binder& binder, std::span<const Value> ups) {
  return ProjectionsOf(ups, [&](Value up) { return binder.tensor(up).shape; });
}

double FlopsOf(const Program& program, int64_t rows, std::span<const Value> ups) {
  double flops = 0;
  for (const Value up : ups) flops += ProductFlops(rows, program.info(up).shape.elements());
  return flops;
}

// The last inputs are the matrices of the projections.
class ThinGradientOp final : public Op {
 public:
  enum Input { kDy, kFirstUp };
  enum Output { kDnarrow };
  absl::string_view name() const override { return "thin_products_input_gradient"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(program, program.info(instance.inputs[kDy]).shape.rows(),
                         std::span(instance.inputs).subspan(kFirstUp));
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    std::vector<Call> calls;
    for (const Projection& p :
         ProjectionsOf(binder, std::span(instance.inputs).subspan(kFirstUp))) {
      calls.push_back(BindProduct(binder, {.role = Role::kInputGradient,
                                           .a = binder.tensor(instance.inputs[kDy]),
                                           .b = binder.tensor(p.up),
                                           .out = binder.tensor(instance.outputs[kDnarrow]),
                                           .a_columns = p.wide,
                                           .out_columns = p.narrow}));
    }
    return InOrder(std::move(calls));
  }
};

// Of the projection with these columns.
class ThinWeightGradientOp final : public NamedOp<ThinWeightGradientOp> {
 public:
  enum Input { kDy, kNarrow, kInputs };
  enum Output { kDup, kOutputs };
  ThinWeightGradientOp(const ColumnRange& wide, const ColumnRange& narrow)
      : wide_(wide), narrow_(narrow) {}
  absl::string_view name() const override { return "thin_products_weight_gradient"; }
  // Counts only the columns that are read.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    const ValueInfo &dy = program.info(instance.inputs[kDy]),
                    &narrow = program.info(instance.inputs[kNarrow]),
                    &dup = program.info(instance.outputs[kDup]);
    const double rows = double(dy.shape.rows());
    return {.flops = ProductFlops(dy.shape.rows(), dup.shape.elements()),
            .bytes = rows * double(wide_.count) * double(SizeOf(dy.dtype)) +
                     rows * double(narrow_.count) * double(SizeOf(narrow.dtype)) +
                     double(dup.bytes())};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value dup = instance.outputs[kDup];
    return BindProduct(binder, {.role = Role::kWeightGradient,
                                .a = binder.tensor(instance.inputs[kDy]),
                                .b = binder.tensor(instance.inputs[kNarrow]),
                                .out = binder.tensor(dup),
                                .write = binder.write(dup),
                                .a_columns = wide_,
                                .b_columns = narrow_});
  }

 private:
  const ColumnRange wide_, narrow_;
};

// The last inputs are the matrices of the projections.
class ThinProductsOp final : public Op {
 public:
  enum Input { kY, kNarrow, kFirstUp };
  enum Output { kSum };
  absl::string_view name() const override { return "thin_products"; }
  bool MayAlias(int /*output*/, int input) const override { return input == kY; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(program, program.info(instance.inputs[kY]).shape.rows(),
                         std::span(instance.inputs).subspan(kFirstUp));
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value sum = instance.outputs[kSum];
    std::vector<Call> calls;
    for (const Projection& p :
         ProjectionsOf(binder, std::span(instance.inputs).subspan(kFirstUp))) {
      calls.push_back(BindProduct(binder, {.role = Role::kForward,
                                           .a = binder.tensor(instance.inputs[kNarrow]),
                                           .b = binder.tensor(p.up),
                                           .out = binder.tensor(sum),
                                           .write = Write::kAdd,
                                           .a_columns = p.narrow,
                                           .out_columns = p.wide}));
    }
    return After(CopyUnlessInPlace(binder, instance.inputs[kY], sum), InOrder(std::move(calls)));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value dy = output_grads[kSum], narrow = instance.inputs[kNarrow];
    const ValueInfo info = recorder.info(narrow);
    const auto ups = std::span(instance.inputs).subspan(kFirstUp);
    std::vector<Value> grads(instance.inputs.size());
    grads[kY] = dy;
    if (info.differentiable) {
      std::vector<Value> inputs = {dy};
      inputs.insert(inputs.end(), ups.begin(), ups.end());
      grads[kNarrow] =
          recorder.Emit(std::make_shared<ThinGradientOp>(), std::move(inputs),
                        {{.shape = info.shape, .dtype = info.dtype, .name = "dnarrow"}})[0];
    }
    recorder.set_list(List::kBackwardWeight);
    for (const Projection& p :
         ProjectionsOf(ups, [&](Value up) { return recorder.info(up).shape; })) {
      if (!recorder.IsTrainable(p.up)) continue;
      recorder.Emit(std::make_shared<ThinWeightGradientOp>(p.wide, p.narrow), {dy, narrow},
                    {Recorder::Output::Into(recorder.Gradient(p.up))});
    }
    recorder.set_list(List::kBackwardInput);
    return grads;
  }
};

}  // namespace

Value AddThinProducts(Recorder& recorder, Value y, Value narrow, const std::vector<Value>& up) {
  const ValueInfo info = recorder.info(y), of_narrow = recorder.info(narrow);
  int64_t wide = 0, rank = 0;
  for (const Value matrix : up) {
    FormatOf(recorder, {ProductKind::kPlain, Role::kForward}, narrow, matrix);
    wide += recorder.info(matrix).shape[0];
    rank += recorder.info(matrix).shape[1];
  }
  CHECK(info.shape == Shape({of_narrow.shape[0], wide}) && of_narrow.shape[1] == rank &&
        info.dtype == of_narrow.dtype)
      << "thin_products: " << info << " plus " << of_narrow << " times matrices [" << wide << ", "
      << rank << "]";
  std::vector<Value> inputs = {y, narrow};
  inputs.insert(inputs.end(), up.begin(), up.end());
  return recorder.Emit(std::make_shared<ThinProductsOp>(), std::move(inputs),
                       {{.shape = info.shape, .dtype = info.dtype, .name = "adapted"}})[0];
}

}  // namespace trainyard::ops
