// Proves products with a weight in NF4 (kernels/products/matmul.h): each is, within rounding, the
// product with the numbers that the weight stands for, in one part and in several; in both roles,
// for a weight of several tensors of which a rank has some columns. And products of some columns of
// their operands, against the same product of matrices that stand alone.
#include <cstring>
#include <numeric>

#include "kernels/products/dequantize_nf4.h"
#include "kernels/products/matmul.h"
#include "kernels/products/nf4_parts.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::matmul_nf4 {

// A rank's `columns` of several tensors, whose rows follow one another. The first column is within
// a row of each tensor.
struct Packed {
  static constexpr int64_t kSkippedBlocks = 1;
  std::vector<int64_t> rows;
  int64_t columns;
  Array<uint8_t> codes = Bytes({all_rows(), columns / kNf4PerByte}, 1);
  Array<uint8_t> scales = Bytes({all_rows(), columns / kNf4Block}, 2);
  std::vector<Nf4Run> runs = Runs();
  Array<float> groups = Normal<float>({runs.back().first_group + runs.back().groups}, 3);

  int64_t all_rows() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
  std::vector<Nf4Run> Runs() const {
    std::vector<Nf4Run> runs;
    const int64_t row_blocks = columns / kNf4Block + 2 * kSkippedBlocks;
    int64_t row = 0, group = 0;
    for (const int64_t n : rows) {
      const int64_t groups = (n * row_blocks + kNf4Group - 1) / kNf4Group + 1;
      runs.push_back({row, n, kSkippedBlocks, row_blocks, group, groups});
      row += n;
      group += groups;
    }
    return runs;
  }
  static Array<uint8_t> Bytes(const Shape& shape, uint64_t seed) {
    auto bytes = Zeros<uint8_t>(shape);
    for (size_t i = 0; i < bytes.v.size(); ++i) bytes.v[i] = uint8_t(RandomBits(seed, 0, i));
    return bytes;
  }
  template <typename T>
  Array<T> Numbers() const {
    auto numbers = Poison<T>({all_rows(), columns});
    Array<uint8_t> of_codes = codes, of_scales = scales;
    Array<float> of_groups = groups;
    ForEachRun({.codes = of_codes,
                .operand = {.scales = of_scales, .groups = of_groups, .runs = runs},
                .row = 0},
               numbers, [](const DequantizeNf4Args& args) { Call(args); });
    return numbers;
  }
};

template <typename T>
void ExpectIsTheProductWithNumbers(const Packed& weight, bool forward, int64_t m) {
  SCOPED_TRACE(::testing::Message() << DTypeOf<T>::value << (forward ? " forward" : " backward")
                                    << " of " << weight.all_rows() << " by " << weight.columns);
  const int64_t n = forward ? weight.all_rows() : weight.columns;
  const int64_t k = forward ? weight.columns : weight.all_rows();
  const auto a = Normal<T>({m, k}, 4), bias = Normal<T>({n}, 5), numbers = weight.Numbers<T>();
  for (const bool adds : {false, true}) {
    auto got = Normal<T>({m, n + 5}, 6), want = got;
    MatMulArgs args = {.a = a,
                       .b = numbers,
                       .c = want,
                       .trans_b = forward,
                       .write = adds ? Write::kAdd : Write::kOverwrite,
                       .c_columns = {3, n}};
    if (forward && !adds) args.bias = bias;
    Call(args);
    args.b = weight.codes;
    args.nf4_scales = weight.scales;
    args.nf4_groups = weight.groups;
    args.nf4_runs = weight.runs;
    args.c = got;
    Call(args);
    ExpectClose(Converted<double>(got).v, Converted<double>(want).v,
                Tolerance(DTypeOf<T>::value, k));
  }
}

// One part; several, of which the last is smaller, and whose ends are within a tensor; and rows
// that a CPU's cache does not hold at once.
TEST(MatMulNf4, IsTheProductWithItsNumbers) {
  for (const auto& [rows, columns, m] :
       {std::tuple<std::vector<int64_t>, int64_t, int64_t>{{64, 32, 16}, 128, 5},
        {{700, 130, 71}, 960, 3},
        {{130}, 2048, 300}}) {
    const Packed weight = {.rows = rows, .columns = columns};
    for (const bool forward : {true, false}) {
      ExpectIsTheProductWithNumbers<double>(weight, forward, m);
      ExpectIsTheProductWithNumbers<float>(weight, forward, m);
      ExpectIsTheProductWithNumbers<bf16>(weight, forward, m);
    }
  }
}

// The last part has what is left.
TEST(MatMulNf4, PartsHaveTheColumnsThatFit) {
  const auto a = Zeros<float>({2, 960});
  auto c = Zeros<float>({2, 901});
  const Packed weight = {.rows = {700, 201}, .columns = 960};
  const MatMulArgs args = {.a = a, .b = weight.codes, .c = c, .trans_b = true};
  EXPECT_EQ(PartSizesOf(args, 960).each, 901) << "all";
  EXPECT_EQ(PartSizesOf(args, 448).each, 448);
  EXPECT_EQ(PartSizesOf(args, 448).elements, 448 * 960);
  EXPECT_EQ(PartSizesOf(args, 0).each, 64);
}

// On an H200: a wave of tiles where the cache has room for fewer columns, and otherwise the cache.
TEST(MatMulNf4, PartsOnAGpuFillItOrItsCache) {
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = 4096, .summed = 4096}, 2), 4096) << "32 MiB";
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = 4096, .summed = 28672}, 2), 1024) << "32 by 4 tiles";
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = 2048, .summed = 28672}, 2), 2048) << "16 by 8 tiles";
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = 2048, .summed = 5120}, 2), 2048) << "not a wave and a half";
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = int64_t{1} << 20, .summed = 1 << 20}, 2), 256);
  EXPECT_EQ(Nf4ColumnsOnGpu({.rows = 512, .summed = 28672}, 2), 2304) << "126 MiB, no wave";
}

TEST(MatMulNf4DeathTest, NamesTheArgumentOfWrongShape) {
  const auto a = Zeros<float>({2, 128}), dy = Zeros<float>({2, 192});
  auto c = Zeros<float>({2, 96});
  const Packed weight = {.rows = {64, 32}, .columns = 128};
  MatMulArgs args = {.a = a,
                     .b = weight.codes,
                     .c = c,
                     .trans_b = true,
                     .nf4_scales = weight.scales,
                     .nf4_groups = weight.groups,
                     .nf4_runs = weight.runs};
  args.nf4_scales = weight.codes;
  EXPECT_DEATH(Call(args), "matmul nf4_scales: wanted u8 \\[96, 2\\], got u8 \\[96, 64\\]");
  args.nf4_scales = weight.scales;
  args.nf4_runs = std::span(weight.runs).first(1);
  EXPECT_DEATH(Call(args), "matmul nf4_runs: wanted 96 rows, got 64");
  std::vector<Nf4Run> runs = weight.runs;
  runs.back().first_block = 200;
  args.nf4_runs = runs;
  EXPECT_DEATH(Call(args), "matmul nf4_groups: wanted one for block 325, got 1 groups from 2 of");
  args.nf4_runs = weight.runs;
  args.a = dy;
  EXPECT_DEATH(Call(args), "matmul b: wanted u8 \\[96, 96\\], got u8 \\[96, 64\\]");
  args.trans_a = true;
  EXPECT_DEATH(Call(args), "matmul b: NF4 is a weight of whole blocks of 64");
}

struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b;
};

// `matrix` as columns of a wider one, from column 8 on. The others are NaN.
template <typename T>
Array<T> Wider(const Array<T>& matrix, int64_t more) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  auto wide = Poison<T>({rows, columns + more});
  for (int64_t i = 0; i < rows * columns; ++i) {
    wide.v[size_t(i / columns * (columns + more) + 8 + i % columns)] = matrix.v[size_t(i)];
  }
  return wide;
}

template <typename T, typename C>
void ExpectColumnsAreTheMatrix(const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << c.m << 'x' << c.n << 'x' << c.k << " trans " << c.trans_a << c.trans_b << ' '
               << DTypeOf<T>::value << " to " << DTypeOf<C>::value);
  const auto a = Normal<T>(c.trans_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1);
  const auto b = Normal<T>(c.trans_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2);
  auto want = Normal<C>({c.m, c.n}, 3);
  const auto wide_a = Wider(a, 24), wide_b = Wider(b, 16);
  auto got = Wider(want, 32);
  const auto before = got;
  MatMulArgs args = {
      .a = a, .b = b, .c = want, .trans_a = c.trans_a, .trans_b = c.trans_b, .write = Write::kAdd};
  Call(args);
  args.a = wide_a, args.b = wide_b, args.c = got;
  args.a_columns = {8, a.shape[1]}, args.b_columns = {8, b.shape[1]};
  args.c_columns = {8, c.n};
  Call(args);
  auto columns = Zeros<C>({c.m, c.n});
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t i = 0; i < c.n + 32; ++i) {
      const size_t at = size_t(row * (c.n + 32) + i);
      if (i >= 8 && i < 8 + c.n) {
        columns.v[size_t(row * c.n + i - 8)] = got.v[at];
      } else {
        ASSERT_EQ(std::memcmp(&got.v[at], &before.v[at], sizeof(C)), 0) << "beside the columns";
      }
    }
  }
  ExpectClose(Converted<double>(columns).v, Converted<double>(want).v,
              Tolerance(DTypeOf<C>::value, c.k));
}

TEST(MatMulColumns, AreTheProductOfTheMatrices) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const auto& [m, n, k] : {std::array{5, 24, 8}, {33, 136, 64}, {64, 16, 200}}) {
        const Case c = {m, n, k, trans_a, trans_b};
        ExpectColumnsAreTheMatrix<double, double>(c);
        ExpectColumnsAreTheMatrix<float, float>(c);
        ExpectColumnsAreTheMatrix<bf16, bf16>(c);
        ExpectColumnsAreTheMatrix<bf16, float>(c);
      }
    }
  }
}

TEST(MatMulColumnsDeathTest, NamesColumnsThatAreNotThere) {
  const auto a = Zeros<float>({2, 8}), b = Zeros<float>({3, 8});
  auto c = Zeros<float>({2, 5});
  MatMulArgs args = {.a = a, .b = b, .c = c, .trans_b = true, .c_columns = {3, 3}};
  EXPECT_DEATH(Call(args), "matmul c: wanted columns of \\[2, 5\\], got 3 to 6");
  args.c_columns = {1, 2};
  EXPECT_DEATH(Call(args), "matmul c: wanted f32 \\[2, 3\\], got 2 columns of f32 \\[2, 5\\]");
}

}  // namespace trainyard::testing::matmul_nf4
