// The recipe of one recording: the format of each kind of storage and of each kind of product.
// Training in f64, f32 and bf16 are three recordings. Every format is named here.

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

// The weights that a product uses.
enum class ProductKind : uint8_t { kLayer, kExperts, kRouter, kHead };
const char* Name(ProductKind kind);

struct ProductUse {
  ProductKind kind = ProductKind::kLayer;
  ProductRole role = ProductRole::kForward;
};

// Has no default, so that a precision that omits one of its products does not compile.
struct ProductFormat {
  constexpr ProductFormat(DType operands, DType result) : operands(operands), result(result) {}

  DType operands;  // Both operands.
  DType result;
  bool operator==(const ProductFormat&) const = default;
};

// The formats of one kind of product, by role.
using ProductFormats = std::array<ProductFormat, 3>;

struct Precision {
  // Storages.
  DType weight;      // Trainable parameters, as forward and backward read them.
  DType frozen;      // Frozen parameters; no other copy exists.
  DType gradient;    // Gradients of parameters: sums over micro-batches.
  DType reduced;     // The same while they are sent; sums are f32 or better.
  DType master;      // Trainable parameters, as the optimizer updates them.
  DType moment;      // The optimizer's moments.
  DType activation;  // Activations and their gradients.
  DType statistic;   // Statistics of rows, losses, rotations, weights of experts.
  // Products.
  ProductFormats layer, experts, router, head;

  ProductFormat product(const ProductUse& use) const;
  // The formats that at least one product has, each once.
  std::vector<ProductFormat> ProductFormatsUsed() const;
  // The operands' dtype of most products. MFU is relative to a device's peak in this dtype.
  DType multiplied() const { return product({}).operands; }

  static Precision F64();
  static Precision F32();
  static Precision BF16();
};

}  // namespace trainyard
