#include "models/program/precision.h"

#include <algorithm>
#include <cstdlib>

#include "common/check.h"

namespace trainyard {
namespace {

Precision Everywhere(DType dtype) {
  const ProductFormat format{dtype, dtype};
  const ProductFormats formats = {format, format, format};
  return {.weight = dtype,
          .frozen = dtype,
          .gradient = dtype,
          .reduced = dtype,
          .master = dtype,
          .moment = dtype,
          .activation = dtype,
          .statistic = dtype,
          .logits = dtype,
          .layer = formats,
          .plain = formats,
          .experts = formats,
          .router = formats,
          .head = formats};
}

}  // namespace

const char* Name(ProductRole role) {
  switch (role) {
    case ProductRole::kForward:
      return "forward";
    case ProductRole::kInputGradient:
      return "input gradient";
    case ProductRole::kWeightGradient:
      return "weight gradient";
  }
  return "?";
}

const char* Name(ProductKind kind) {
  switch (kind) {
    case ProductKind::kLayer:
      return "layer";
    case ProductKind::kPlain:
      return "plain layer";
    case ProductKind::kExperts:
      return "experts";
    case ProductKind::kRouter:
      return "router";
    case ProductKind::kHead:
      return "head";
  }
  return "?";
}

Precision Precision::F64() { return Everywhere(DType::kF64); }

Precision Precision::F32() { return Everywhere(DType::kF32); }

Precision Precision::BF16() {
  constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
  constexpr ProductFormat kRounded{kBF16, kBF16}, kSums{kBF16, kF32};
  return {.weight = kBF16,
          .frozen = kBF16,
          .gradient = kF32,
          .reduced = kF32,
          .master = kF32,
          .moment = kF32,
          .activation = kBF16,
          .statistic = kF32,
          .logits = kF32,
          // In the order forward, input gradient, weight gradient.
          .layer = {kRounded, kRounded, kSums},
          .plain = {kRounded, kRounded, kSums},
          .experts = {kRounded, kRounded, kSums},
          .router = {kSums, kRounded, kSums},
          .head = {kSums, kRounded, kSums}};
}

Precision Precision::WithNarrowWeights() const {
  CHECK(weight == DType::kF32 && activation == DType::kF32) << weight << ' ' << activation;
  Precision with = *this;
  with.narrow_weight = DType::kBF16;
  return with;
}

bool Precision::CanBeCompact() const {
  return weight == DType::kBF16 && master == DType::kF32 && gradient == DType::kF32;
}

Precision Precision::WithCompactState() const {
  CHECK(CanBeCompact()) << "weights are " << weight << " and masters " << master;
  Precision with = *this;
  with.split_masters = true;
  with.moment = DType::kBF16;
  return with;
}

Precision Precision::WithRoundedLogits() const {
  Precision with = *this;
  with.logits = activation;
  return with;
}

Precision Precision::WithLayers(const OperandFormat& x, const OperandFormat& w,
                                const OperandFormat& dy) const {
  Precision with = *this;
  const auto result = [&](ProductRole role) { return layer[size_t(role)].result; };
  with.layer = {ProductFormat(x, w, result(ProductRole::kForward)),
                ProductFormat(dy, w, result(ProductRole::kInputGradient)),
                ProductFormat(dy, x, result(ProductRole::kWeightGradient))};
  return with;
}

Precision Precision::WithExpertsAsLayers() const {
  Precision with = *this;
  with.experts = layer;
  return with;
}

Precision Precision::WithExpertsByRows() const {
  Precision with = *this;
  with.experts = layer;
  constexpr auto kOfWeight = size_t(ProductRole::kWeightGradient);
  with.experts[kOfWeight] = experts[kOfWeight];
  return with;
}

ProductFormat Precision::product(const ProductUse& use) const {
  switch (use.kind) {
    case ProductKind::kLayer:
      return layer[size_t(use.role)];
    case ProductKind::kPlain:
      return plain[size_t(use.role)];
    case ProductKind::kExperts:
      return experts[size_t(use.role)];
    case ProductKind::kRouter:
      return router[size_t(use.role)];
    case ProductKind::kHead:
      return head[size_t(use.role)];
  }
  CHECK(false) << "no product of kind " << int(use.kind);
  std::abort();
}

bool Precision::HasScales(ProductKind kind) const {
  using enum ProductRole;
  return product({kind, kForward}).scaled() || product({kind, kInputGradient}).scaled() ||
         product({kind, kWeightGradient}).scaled();
}

bool Precision::HasBlocks() const {
  const auto divides = [](const OperandFormat& operand) {
    return operand.scaling && (operand.scaling->kept > 1 || operand.scaling->summed > 1);
  };
  return std::any_of(layer.begin(), layer.end(), [&](const ProductFormat& format) {
    return divides(format.a) || divides(format.b);
  });
}

std::vector<ProductFormat> Precision::ProductFormatsUsed() const {
  std::vector<ProductFormat> used;
  for (const ProductFormats& formats : {layer, plain, experts, router, head}) {
    for (const ProductFormat& format : formats) {
      if (std::find(used.begin(), used.end(), format) == used.end()) used.push_back(format);
    }
  }
  return used;
}

}  // namespace trainyard
