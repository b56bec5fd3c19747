#include "models/program/product.h"

#include <utility>

#include "common/check.h"
#include "kernels/experts/grouped_bias.h"
#include "kernels/products/grouped_matmul.h"
#include "kernels/products/matmul.h"
#include "kernels/products/matmul_gelu.h"
#include "kernels/products/scaled_matmul.h"
#include "models/program/binder.h"
#include "models/program/recorder.h"

namespace trainyard {
namespace {

bool Has(const ConstTensor& tensor) { return tensor.data != nullptr; }

// The matrix whose transpose `operand` is, if it is given so. Its numbers stay where they are.
ConstTensor AsMatrix(const ConstTensor& operand, bool by_columns) {
  const Shape& shape = operand.shape;
  return by_columns ? ConstTensor{operand.data, operand.dtype, {shape.back(), shape.rows()}}
                    : operand;
}

Call BindGrouped(const Binder& binder, const Product& p) {
  switch (p.role) {
    case ProductRole::kForward:
      break;
    case ProductRole::kInputGradient:
      return binder.Kernel(GroupedMatMulInputGradientArgs{.dy = p.a,
                                                          .weight = p.b,
                                                          .offsets = p.offsets,
                                                          .dx = p.out,
                                                          .write = p.write,
                                                          .dy_scales = p.a_scales.scales,
                                                          .weight_scales = p.b_scales.scales,
                                                          .nf4_scales = p.nf4.scales,
                                                          .nf4_groups = p.nf4.groups,
                                                          .nf4_tensors = p.nf4.tensors});
    case ProductRole::kWeightGradient:
      return binder.Kernel(GroupedMatMulWeightGradientArgs{.dy = p.a,
                                                           .x = p.b,
                                                           .offsets = p.offsets,
                                                           .dweight = p.out,
                                                           .write = p.write,
                                                           .dy_scales = p.a_scales.scales,
                                                           .x_scales = p.b_scales.scales});
  }
  Call product = binder.Kernel(GroupedMatMulForwardArgs{.x = p.a,
                                                        .weight = p.b,
                                                        .offsets = p.offsets,
                                                        .y = p.out,
                                                        .write = p.write,
                                                        .x_scales = p.a_scales.scales,
                                                        .weight_scales = p.b_scales.scales,
                                                        .nf4_scales = p.nf4.scales,
                                                        .nf4_groups = p.nf4.groups,
                                                        .nf4_tensors = p.nf4.tensors});
  if (!Has(p.epilogue.bias)) return product;
  Call bias = binder.Kernel(GroupedBiasForwardArgs{
      .bias = p.epilogue.bias, .w = p.epilogue.bias_factor, .offsets = p.offsets, .y = p.out});
  return [product = std::move(product), bias = std::move(bias)](Exec& exec) {
    product(exec);
    bias(exec);
  };
}

}  // namespace

ProductFormat FormatOf(const Recorder& recorder, const ProductUse& use, Value a, Value b) {
  const ProductFormat format = recorder.precision().product(use);
  const std::optional<DType> narrow =
      use.role == ProductRole::kForward ? recorder.precision().narrow_weight : std::nullopt;
  const auto expect = [&](Value operand, const OperandFormat& wanted) {
    const DType dtype = recorder.info(operand).dtype;
    const bool in_nf4 = dtype == DType::kU8 && wanted.dtype == recorder.precision().frozen;
    CHECK(dtype == wanted.dtype || (operand == b && (dtype == narrow || in_nf4)))
        << Name(use.kind) << ' ' << Name(use.role) << ": the precision has an operand in "
        << wanted.dtype << ", found " << recorder.info(operand);
  };
  expect(a, format.a);
  expect(b, format.b);
  return format;
}

void Check(const Product& p) {
  const Epilogue& epilogue = p.epilogue;
  const bool forward = p.role == ProductRole::kForward;
  const bool input_gradient = p.role == ProductRole::kInputGradient;
  const bool weight_gradient = p.role == ProductRole::kWeightGradient;
  const bool grouped = Has(p.offsets), gelu = Has(epilogue.gelu) || Has(epilogue.gelu_input);
  const bool scaled = Has(p.a_scales.scales);
  const auto expect = [&](bool is_there, const char* what) {
    CHECK(is_there) << "no kernel computes the " << Name(p.role) << (grouped ? " of groups" : "")
                    << " with " << what;
  };
  expect(scaled == Has(p.b_scales.scales), "scales of one operand");
  expect(!scaled || !gelu, "scales");
  expect(!Has(epilogue.bias) || forward, "a bias");
  expect(!Has(epilogue.bias_factor) || (Has(epilogue.bias) && grouped), "a factor of the bias");
  expect(!Has(epilogue.gelu) || (forward && !grouped), "GELU");
  expect(!Has(epilogue.gelu_input) || (input_gradient && !grouped), "GELU's derivative");
  const bool adds = weight_gradient || (!gelu && !Has(epilogue.bias));
  expect(p.write == Write::kOverwrite || adds, "a sum as its output");
  const bool in_nf4 = Has(p.nf4.scales);
  const bool of_columns = !p.a_columns.all() || !p.b_columns.all() || !p.out_columns.all();
  expect(!of_columns || !(grouped || scaled || gelu), "columns of an operand");
  expect(!in_nf4 || !(scaled || gelu || weight_gradient), "a weight in NF4");
}

Call BindProduct(const Binder& binder, const Product& p) {
  Check(p);
  const Epilogue& epilogue = p.epilogue;
  if (Has(p.offsets)) return BindGrouped(binder, p);
  if (Has(p.a_scales.scales)) {
    return binder.Kernel(ScaledMatMulArgs{.a = AsMatrix(p.a, p.a_scales.by_columns),
                                          .a_scales = p.a_scales.scales,
                                          .a_block = p.a_scales.block,
                                          .b = AsMatrix(p.b, p.b_scales.by_columns),
                                          .b_scales = p.b_scales.scales,
                                          .b_block = p.b_scales.block,
                                          .a_by_columns = p.a_scales.by_columns,
                                          .b_by_columns = p.b_scales.by_columns,
                                          .c = p.out,
                                          .bias = epilogue.bias,
                                          .trans_a = p.role == ProductRole::kWeightGradient,
                                          .trans_b = p.role == ProductRole::kForward,
                                          .write = p.write});
  }
  if (Has(epilogue.gelu)) {
    return binder.Kernel(MatMulGeluForwardArgs{
        .x = p.a, .w = p.b, .bias = epilogue.bias, .product = p.out, .y = epilogue.gelu});
  }
  if (Has(epilogue.gelu_input)) {
    return binder.Kernel(
        MatMulGeluBackwardArgs{.dy = p.a, .w = p.b, .x = epilogue.gelu_input, .dx = p.out});
  }
  return binder.Kernel(MatMulArgs{.a = p.a,
                                  .b = p.b,
                                  .c = p.out,
                                  .bias = epilogue.bias,
                                  .trans_a = p.role == ProductRole::kWeightGradient,
                                  .trans_b = p.role == ProductRole::kForward,
                                  .write = p.write,
                                  .a_columns = p.a_columns,
                                  .b_columns = p.b_columns,
                                  .c_columns = p.out_columns,
                                  .nf4_scales = p.nf4.scales,
                                  .nf4_groups = p.nf4.groups,
                                  .nf4_runs = p.nf4.runs});
}

}  // namespace trainyard
