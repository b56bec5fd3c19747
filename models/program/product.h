// A matrix product as an op describes it. BindProduct chooses the kernel of every product: no op
// asks the backend for a matrix product.
//
// Letters: T rows, K inputs and N outputs of a linear layer with weight w [N, K]; G groups that
// divide the rows, each with its own weight (kernels/products/grouped_matmul.h).

#pragma once

#include "kernels/device/column_range.h"
#include "kernels/device/narrow.h"
#include "kernels/device/nf4_operand.h"
#include "kernels/device/tensor.h"
#include "models/program/op.h"
#include "models/program/precision.h"

namespace trainyard {

class Recorder;

// The format that the recording's precision has for the product of a and b. CHECKs that the
// operands have the format's dtypes, because nothing is converted. So the format has no scales. The
// weight of a forward product may be a narrow one (Recorder::Weights), and a weight in NF4 becomes
// numbers of the format's dtype.
ProductFormat FormatOf(const Recorder& recorder, const ProductUse& use, Value a, Value b);

// Applied to the result before it is written. Members without data do nothing.
struct Epilogue {
  // Forward: added to the rows. [N], or [G, N] for groups.
  ConstTensor bias = {};
  ConstTensor bias_factor = {};  // [T], factor of each row's bias. Only for groups.
  // Forward: GELU of the result is written here, too. [T, N].
  Tensor gelu = {};
  // Input gradient: the result is multiplied by GELU's derivative at these values. [T, K].
  ConstTensor gelu_input = {};
};

// The scales of an operand in 8 bits, and how its numbers share them.
struct OperandScales {
  ConstTensor scales = {};
  ScaleBlock block = {};
  bool by_columns = false;  // The operand is given as its transpose.
};

struct Product {
  ProductRole role = ProductRole::kForward;
  ConstTensor a = {};  // By role: x, dy, dy.
  ConstTensor b = {};  // By role: w, w, x. The weight of groups is [G, N, K].
  // Both or none have data: of operands in 8 bits. Those of groups have the dtype of other groups,
  // and a scale for each group (kernels/products/grouped_round.h).
  OperandScales a_scales = {}, b_scales = {};
  ConstTensor offsets = {};  // i32 [G+1], for groups. Without data: there is one group.
  Tensor out = {};           // dtypes as in the kernel's header.
  Epilogue epilogue = {};
  Write write = Write::kOverwrite;
  // Columns of a, b and out that take part. All of them for groups and for operands in 8 bits.
  ColumnRange a_columns = {}, b_columns = {}, out_columns = {};
  Nf4Operand nf4 = {};  // If b is the codes of a weight in NF4 (matmul.h), or of groups' weights.
};

// CHECKs that a kernel computes this product. For example, none computes GELU of groups, or adds a
// product with a bias to its output.
void Check(const Product& product);

// Checks the product and returns a call of its kernel.
Call BindProduct(const Binder& binder, const Product& product);

// FLOPs of one product in any role. T rows; the elements of the weight or of its gradient.
inline double ProductFlops(int64_t rows, int64_t weight_elements) {
  return 2.0 * double(rows) * double(weight_elements);
}

}  // namespace trainyard
