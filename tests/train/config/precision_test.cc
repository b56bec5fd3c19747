// Proves that a precision runs where all of its products do, and that each one runs somewhere: a
// row that no kind of device has could be submitted and would wait for ever.
#include "train/config/precision.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(PrecisionTest, EachRunsOnSomeKindOfDevice) {
  for (const PrecisionRow& row : Precisions()) {
    EXPECT_TRUE(row.RunsOn(DeviceKind::kCpu) || row.RunsOn(DeviceKind::kCuda)) << row.name;
  }
}

TEST(PrecisionTest, RunsWhereAllOfItsProductsDo) {
  EXPECT_TRUE(RowOf(PrecisionName::kBF16).RunsOn(DeviceKind::kCuda));
  EXPECT_FALSE(RowOf(PrecisionName::kF64).RunsOn(DeviceKind::kCuda));
  PrecisionRow row = RowOf(PrecisionName::kBF16);
  row.formats.router = RowOf(PrecisionName::kF64).formats.router;
  EXPECT_TRUE(row.RunsOn(DeviceKind::kCpu));
  EXPECT_FALSE(row.RunsOn(DeviceKind::kCuda)) << "its router's products are in f64";
  row.formats.head[0] = {DType::kBF16, DType::kF64};
  EXPECT_FALSE(row.RunsOn(DeviceKind::kCpu)) << "no kind of device has its logits";
}

// Bug it must catch: a recipe whose products would write another format than gradients are kept in.
TEST(PrecisionTest, WeightGradientsAreWhatGradientsAreKeptIn) {
  for (const PrecisionRow& row : Precisions()) {
    for (const ProductKind kind : kProductKinds) {
      EXPECT_EQ(row.formats.product({kind, ProductRole::kWeightGradient}).result,
                row.formats.gradient)
          << row.name << ", " << Name(kind);
    }
  }
}

// Every storage and product spelled out: a slip there changes what all jobs train in.
TEST(PrecisionTest, BF16RoundsWhatIsMultipliedAndSumsInF32) {
  const Precision& formats = RowOf(PrecisionName::kBF16).formats;
  for (DType dtype : {formats.weight, formats.frozen, formats.activation, formats.multiplied()}) {
    EXPECT_EQ(dtype, DType::kBF16);
  }
  for (DType dtype : {formats.gradient, formats.reduced, formats.master, formats.moment,
                      formats.statistic, formats.logits}) {
    EXPECT_EQ(dtype, DType::kF32);
  }
  for (const ProductKind kind : kProductKinds) {
    const bool logits = kind == ProductKind::kRouter || kind == ProductKind::kHead;
    const auto result = [&](ProductRole role) { return formats.product({kind, role}).result; };
    EXPECT_EQ(result(ProductRole::kForward), logits ? DType::kF32 : DType::kBF16) << Name(kind);
    EXPECT_EQ(result(ProductRole::kInputGradient), DType::kBF16) << Name(kind);
    EXPECT_EQ(result(ProductRole::kWeightGradient), DType::kF32) << Name(kind);
  }
}

struct EightBits {
  PrecisionName precision;
  OperandFormat x, w, dy;
};

// As the recipes are published; see docs/precision.md.
TEST(PrecisionTest, EightBitsAreBf16ButForTheOperandsOfLayersAndOfExpertsInTwo) {
  constexpr DType kE4M3 = DType::kE4M3, kE5M2 = DType::kE5M2;
  constexpr Scaling kTensor{}, kRow{.kept = 1}, kDelayed{.history = 1024};
  constexpr Scaling kLine{.kept = 1, .summed = 128}, kSquare{.kept = 128, .summed = 128};
  using enum PrecisionName;
  for (const EightBits& want :
       {EightBits{kFP8Delayed, {kE4M3, kDelayed}, {kE4M3, kDelayed}, {kE5M2, kDelayed}},
        EightBits{kFP8Current, {kE4M3, kTensor}, {kE4M3, kTensor}, {kE5M2, kTensor}},
        EightBits{kFP8Blockwise, {kE4M3, kLine}, {kE4M3, kSquare}, {kE4M3, kLine}},
        EightBits{kFP8Rowwise, {kE4M3, kRow}, {kE4M3, kRow}, {kE5M2, kRow}}}) {
    const PrecisionRow& row = RowOf(want.precision);
    SCOPED_TRACE(row.name);
    const Precision& formats = row.formats;
    const Precision& bf16 = RowOf(kBF16).formats;
    const ProductFormats layer = {ProductFormat{want.x, want.w, DType::kBF16},
                                  ProductFormat{want.dy, want.w, DType::kBF16},
                                  ProductFormat{want.dy, want.x, DType::kF32}};
    EXPECT_EQ(formats.layer, layer);
    const bool by_rows = want.precision == kFP8Rowwise;
    const bool experts = want.precision == kFP8Delayed || by_rows;
    ProductFormats of_experts = experts ? layer : bf16.experts;
    if (by_rows) of_experts[2] = bf16.experts[2];  // Of the weight gradient.
    EXPECT_EQ(formats.experts, of_experts);
    for (const ProductKind kind : kProductKinds) {
      const bool rounds = kind == ProductKind::kLayer || (kind == ProductKind::kExperts && experts);
      EXPECT_EQ(formats.HasScales(kind), rounds) << Name(kind);
      for (const ProductRole role :
           {ProductRole::kForward, ProductRole::kInputGradient, ProductRole::kWeightGradient}) {
        if (rounds) continue;
        EXPECT_EQ(formats.product({kind, role}), bf16.product({kind, role})) << Name(kind);
      }
    }
    EXPECT_EQ(formats.plain, bf16.layer);
    EXPECT_EQ(formats.weight, bf16.weight);
    EXPECT_EQ(formats.frozen, bf16.frozen);
    EXPECT_EQ(formats.activation, bf16.activation);
    EXPECT_EQ(formats.gradient, bf16.gradient);
    EXPECT_EQ(formats.HasBlocks(), want.precision == kFP8Blockwise);
    EXPECT_TRUE(row.RunsOn(DeviceKind::kCpu));
    EXPECT_TRUE(row.RunsOn(DeviceKind::kCuda));
  }
  EXPECT_EQ(PrecisionNamesOn(DeviceKind::kCuda),
            (std::vector<std::string>{"BF16", "F32", "FP8_DELAYED", "FP8_CURRENT", "FP8_BLOCKWISE",
                                      "FP8_ROWWISE"}));
  EXPECT_EQ(NearestPrecisionOn(DeviceKind::kCuda, "F64"), "F32");
}

}  // namespace
}  // namespace trainyard
