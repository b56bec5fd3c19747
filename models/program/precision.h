// The recipe of one recording: which format each kind of storage and each kind of product has. f64,
// f32 and bf16 training are three recordings. Nothing has a format that is not named here.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/device/dtype.h"

namespace trainyard {

// The three products of a linear layer with weight w [N, K]. Letters: T rows, K inputs, N outputs.
enum class ProductRole : uint8_t {
  kForward,         // y  [T, N] = x  [T, K]  w^T
  kInputGradient,   // dx [T, K] = dy [T, N]  w
  kWeightGradient,  // dw [N, K] = dy^T       x
};
const char* Name(ProductRole role);

// Which of the model's weights it is of.
enum class ProductKind : uint8_t { kLayer, kExperts, kRouter, kHead };
const char* Name(ProductKind kind);

struct ProductUse {
  ProductKind kind = ProductKind::kLayer;
  ProductRole role = ProductRole::kForward;
};

// Has no default, so that a precision without one of its products does not compile.
struct ProductFormat {
  constexpr ProductFormat(DType operands, DType result) : operands(operands), result(result) {}

  DType operands;  // Of both.
  DType result;
  bool operator==(const ProductFormat&) const = default;
};

// Of one kind, in each role.
using ProductFormats = std::array<ProductFormat, 3>;

struct Precision {
  // Storages.
  DType weight;      // What forward and backward read of trainable parameters.
  DType frozen;      // Of frozen ones. The only copy of them.
  DType gradient;    // Of parameters: sums over micro-batches.
  DType reduced;     // The same on their way to other ranks; sums are f32 or better.
  DType master;      // Of trainable parameters: what the optimizer updates.
  DType moment;      // The optimizer's.
  DType activation;  // And gradients of activations.
  DType statistic;   // Of rows; losses, rotations, what a token's experts weigh.
  // Products.
  ProductFormats layer, experts, router, head;

  ProductFormat product(const ProductUse& use) const;
  // Each one that some product has, once.
  std::vector<ProductFormat> ProductFormatsUsed() const;
  // The operands' dtype of most multiplications. MFU is counted against a device's peak in it.
  DType multiplied() const { return product({}).operands; }

  static Precision F64();
  static Precision F32();
  static Precision BF16();
};

}  // namespace trainyard
