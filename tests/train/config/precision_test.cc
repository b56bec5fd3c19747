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
    for (ProductKind kind :
         {ProductKind::kLayer, ProductKind::kExperts, ProductKind::kRouter, ProductKind::kHead}) {
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
  for (DType dtype :
       {formats.gradient, formats.reduced, formats.master, formats.moment, formats.statistic}) {
    EXPECT_EQ(dtype, DType::kF32);
  }
  for (ProductKind kind :
       {ProductKind::kLayer, ProductKind::kExperts, ProductKind::kRouter, ProductKind::kHead}) {
    const bool logits = kind == ProductKind::kRouter || kind == ProductKind::kHead;
    const auto result = [&](ProductRole role) { return formats.product({kind, role}).result; };
    EXPECT_EQ(result(ProductRole::kForward), logits ? DType::kF32 : DType::kBF16) << Name(kind);
    EXPECT_EQ(result(ProductRole::kInputGradient), DType::kBF16) << Name(kind);
    EXPECT_EQ(result(ProductRole::kWeightGradient), DType::kF32) << Name(kind);
  }
}

}  // namespace
}  // namespace trainyard
