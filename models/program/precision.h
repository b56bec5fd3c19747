// The recipe of one recording: the format of each kind of storage and of each kind of product.
// Training in f64, f32 and bf16 are three recordings. Every format is named here.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

// The weights that a product uses. kPlain: of linear layers that keep the wide format in every
// recipe: adapters, and layers that a job leaves out of its recipe.
enum class ProductKind : uint8_t { kLayer, kPlain, kExperts, kRouter, kHead };
inline constexpr ProductKind kProductKinds[] = {ProductKind::kLayer, ProductKind::kPlain,
                                                ProductKind::kExperts, ProductKind::kRouter,
                                                ProductKind::kHead};
const char* Name(ProductKind kind);

struct ProductUse {
  ProductKind kind = ProductKind::kLayer;
  ProductRole role = ProductRole::kForward;
};

// How the numbers of an operand in an 8-bit format share scales. An operand has two dims: one is
// summed by the product, and the other is a dim of the result.
struct Scaling {
  int64_t kept = 0;    // So many neighbours along the dim of the result share a scale; 0: all.
  int64_t summed = 0;  // So many neighbours along the summed dim share a scale; 0: all.
  // The scale follows from the greatest values that the tensor had in so many earlier steps
  // (kernels/products/amax_history.h). Only with one scale for all numbers. 0: the scale follows
  // from the numbers themselves (kernels/products/quantize.h).
  int64_t history = 0;
  bool operator==(const Scaling&) const = default;
};

struct OperandFormat {
  constexpr OperandFormat(DType dtype) : dtype(dtype) {}  // NOLINT: a dtype without scales.
  constexpr OperandFormat(DType narrow, const Scaling& scaling) : dtype(narrow), scaling(scaling) {}

  DType dtype;
  std::optional<Scaling> scaling;  // Of an 8-bit dtype, to which the product rounds the operand.
  bool operator==(const OperandFormat&) const = default;
};

// Has no default, so that a precision that omits one of its products does not compile.
struct ProductFormat {
  constexpr ProductFormat(DType operands, DType result)
      : ProductFormat(operands, operands, result) {}
  constexpr ProductFormat(const OperandFormat& a, const OperandFormat& b, DType result)
      : a(a), b(b), result(result) {}

  OperandFormat a, b;  // By role: x and w, dy and w, dy and x.
  DType result;
  bool scaled() const { return a.scaling || b.scaling; }
  bool operator==(const ProductFormat&) const = default;
};

// The formats of one kind of product, by role.
using ProductFormats = std::array<ProductFormat, 3>;

struct Precision {
  // Storages.
  DType weight;  // Trainable parameters, as forward and backward read them.
  DType frozen;  // Frozen parameters; no other copy exists.
  // The weights of linear layers and the table of the vocabulary, in an inference program: products
  // and lookups widen their numbers. Absent: as other weights.
  std::optional<DType> narrow_weight = {};
  DType gradient;  // Gradients of parameters: sums over micro-batches.
  DType reduced;   // The same while they are sent; sums are f32 or better.
  DType master;    // Trainable parameters, as the optimizer updates them.
  DType moment;    // The optimizer's moments.
  // A master is kept as the weight that forward and backward read, and a remainder
  // (kernels/optimizer/split_master.h). Unrounded parameters keep whole masters.
  bool split_masters = false;
  DType activation;  // Activations and their gradients.
  DType statistic;   // Statistics of rows, losses, rotations, weights of experts.
  // The head's logits of which a loss is the cross-entropy. Logits that are outputs, or of which
  // log-probabilities are taken, have the result of the head's product.
  DType logits;
  // Products.
  ProductFormats layer, plain, experts, router, head;

  ProductFormat product(const ProductUse& use) const;
  // Whether a product of this kind has scales in at least one role.
  bool HasScales(ProductKind kind) const;
  // The formats that at least one product has, each once.
  std::vector<ProductFormat> ProductFormatsUsed() const;
  // Whether a scale of layers is of a block of several numbers, but not of all along a dim.
  bool HasBlocks() const;
  // The dtype of the first operand of most products. MFU is relative to a device's peak in this
  // dtype.
  DType multiplied() const { return product({}).a.dtype; }

  static Precision F64();
  static Precision F32();
  static Precision BF16();
  // The same with logits of the loss that are rounded as activations are. GPUs train so: logits are
  // most of what the head moves in memory (docs/precision.md).
  Precision WithRoundedLogits() const;
  // The same for inference programs, which read weights as training in bf16 does, and compute in
  // f32. Only of F32, and on CPUs (kernels/products/matmul.h).
  Precision WithNarrowWeights() const;
  // Whether state can be compact: forward and backward read weights in bf16, of masters in f32.
  bool CanBeCompact() const;
  // The same with masters that are split and moments in bf16. CHECKs CanBeCompact.
  Precision WithCompactState() const;
  // The same, but the products of layers round their operands: the input x, the weight w and the
  // gradient dy of the output.
  Precision WithLayers(const OperandFormat& x, const OperandFormat& w,
                       const OperandFormat& dy) const;
  // The same, but the products of experts round their operands as those of layers do. Only with one
  // scale for all numbers of an operand: of experts, for the numbers of each expert.
  Precision WithExpertsAsLayers() const;
  // The same, but the forward and input-gradient products of experts round their operands as those
  // of layers do, and their weight gradients keep the wide format. Only with one scale for each row
  // and column that a product sums: the scales of a token's row are then of this token alone. Those
  // of a weight gradient would be of all tokens that an expert has at once, which depends on the
  // layout.
  Precision WithExpertsByRows() const;
};

}  // namespace trainyard
