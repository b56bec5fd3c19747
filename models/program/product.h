// A matrix product as an op describes it. BindProduct alone knows which kernel computes which
// product: no op asks the backend for one itself.
//
// Letters: T rows, K inputs and N outputs of a linear layer with weight w [N, K]; G groups that
// share out the rows, each with a weight of its own (kernels/grouped_matmul.h).

#pragma once

#include <cstdint>

#include "kernels/device/tensor.h"
#include "models/program/op.h"

namespace trainyard {

// What a product is of a linear layer, which says how its operands are transposed.
enum class ProductRole : uint8_t {
  kForward,         // y  [T, N] = x  [T, K]  w^T
  kInputGradient,   // dx [T, K] = dy [T, N]  w
  kWeightGradient,  // dw [N, K] = dy^T       x
};

// What happens to the result before it is written. Views without data: nothing.
struct Epilogue {
  // Forward: is added to the rows. [N], or [G, N] of groups.
  ConstTensor bias = {};
  ConstTensor bias_factor = {};  // [T], what each row's bias is multiplied by. Of groups alone.
  // Forward: GELU of the result is written here, too. [T, N].
  Tensor gelu = {};
  // Input gradient: the result is multiplied by GELU's derivative at these. [T, K].
  ConstTensor gelu_input = {};
};

struct Product {
  ProductRole role = ProductRole::kForward;
  ConstTensor a = {};        // x, dy or dy.
  ConstTensor b = {};        // w, w or x. A weight of groups is [G, N, K].
  ConstTensor offsets = {};  // i32 [G+1], where groups share out the rows; without data: one group.
  Tensor out = {};           // dtypes as of the kernels' headers: matmul.h, matmul_gelu.h,
                             // grouped_matmul.h.
  Epilogue epilogue = {};
  Write write = Write::kOverwrite;
};

// What no kernel computes (GELU of groups, say, or adding to something what has a bias) is a
// programmer error that names it.
void Check(const Product& product);

// The backend's kernel for it, checked.
Call BindProduct(const Binder& binder, const Product& product);

// Of one product in any role: T rows, and the elements of the weight or of its gradient.
inline double ProductFlops(int64_t rows, int64_t weight_elements) {
  return 2.0 * double(rows) * double(weight_elements);
}

}  // namespace trainyard
