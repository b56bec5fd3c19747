// Proves which products in 8 bits cuBLASLt computes (kernels/products/scaled_matmul.h): those of
// every recipe, in every role, and that the others are named in a warning and right all the same.
// Where cuBLASLt is emulated, its rules are those of its documentation. A GPU shows the real ones.

#include <gmock/gmock.h>

#include <string>

#include "kernels/products/quantize.h"
#include "kernels/products/scaled_matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// Numbers in 8 bits, all of them 1, with scales of 1.
struct Ones {
  Array<uint8_t> bytes;
  DType dtype;
  ScaleBlock block;
  Array<float> scales;

  Ones(const Shape& shape, DType dtype, const ScaleBlock& block)
      : bytes(Filled<uint8_t>(shape,
                              dtype == DType::kE4M3 ? RoundTo<E4M3>(1.0f) : RoundTo<E5M2>(1.0f))),
        dtype(dtype),
        block(block),
        scales(Filled<float>(block.ScalesOf(shape), 1)) {}
  ConstTensor values() const { return {bytes.v.data(), dtype, bytes.shape}; }
};

struct OnesProduct {
  int64_t m = 32, n = 48, k = 256;
  ScaleBlock a_block = {}, b_block = {};  // Of [M, K] and [N, K].
  DType a = DType::kE4M3, b = DType::kE4M3;
  bool a_by_columns = false;
};

// What the product of ones logs. The product itself must be right.
std::string LogOf(const OnesProduct& of, bool f32 = true) {
  Ones a({of.m, of.k}, of.a, of.a_block), b({of.n, of.k}, of.b, of.b_block);
  auto wide = Poison<float>({of.m, of.n});
  auto narrow = Poison<bf16>({of.m, of.n});
  const auto bias = Zeros<bf16>({of.n});
  ScaledMatMulArgs args{.a = a.values(),
                        .a_scales = a.scales,
                        .a_block = a.block,
                        .b = b.values(),
                        .b_scales = b.scales,
                        .b_block = b.block,
                        .a_by_columns = of.a_by_columns,
                        .c = f32 ? Tensor(wide) : Tensor(narrow),
                        .trans_b = true};
  if (!f32) args.bias = bias;
  ::testing::internal::CaptureStderr();
  Call(args);
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (int64_t i = 0; i < of.m * of.n; ++i) {
    EXPECT_EQ(f32 ? wide.v[size_t(i)] : float(narrow.v[size_t(i)]), float(of.k)) << i;
  }
  return log;
}

constexpr ScaleBlock kRow{.rows = 1}, kLine{.rows = 1, .columns = 128};
constexpr ScaleBlock kSquare{.rows = 128, .columns = 128};

TEST(ScaledMatMulLibrary, ComputesTheProductsOfEveryRecipe) {
  constexpr DType kE5M2 = DType::kE5M2;
  for (const bool f32 : {true, false}) {
    EXPECT_EQ(LogOf({}, f32), "");
    EXPECT_EQ(LogOf({.a = kE5M2}, f32), "");
    EXPECT_EQ(LogOf({.a_block = kRow, .b_block = kRow}, f32), "");
    EXPECT_EQ(LogOf({.a_block = kRow, .b_block = kRow, .a = kE5M2}, f32), "");
    EXPECT_EQ(LogOf({.a_block = kLine, .b_block = kSquare}, f32), "");
    EXPECT_EQ(LogOf({.a_block = kLine, .b_block = kLine}, f32), "");
    EXPECT_EQ(LogOf({.k = 4096, .a_block = kLine, .b_block = kSquare}, f32), "");
  }
}

TEST(ScaledMatMulLibrary, NamesWhatItDoesNotCompute) {
  constexpr DType kE5M2 = DType::kE5M2;
  const auto expect = [](const OnesProduct& of, const std::string& reason) {
    const std::string log = LogOf(of);
    EXPECT_THAT(log, HasSubstr("scaled_matmul_without_cublaslt"));
    EXPECT_THAT(log, HasSubstr(reason));
  };
  expect({.m = 8}, "no multiple of 16");
  expect({.n = 8}, "no multiple of 16");
  expect({.k = 8}, "no multiple of 16");
  expect({.a = kE5M2, .b = kE5M2}, "e5m2 times e5m2");
  expect({.a_by_columns = true}, "not the last in memory");
  expect({.a_block = kRow}, "scales that cuBLASLt does not have");
  expect({.a_block = kSquare, .b_block = kSquare}, "scales that cuBLASLt does not have");
  expect({.a_block = {.rows = 1, .columns = 64}, .b_block = kLine},
         "scales that cuBLASLt does not have");
}

}  // namespace
}  // namespace trainyard::testing
