// Proves kernels/products/dequantize_nf4.h against its formula, to the bit and on each backend, for
// whole tensors, for parts of their rows and columns, and for some columns of such a part.

#include "kernels/products/dequantize_nf4.h"

#include <cstring>

#include "tests/kernels/call.h"
#include "tests/testing/array.h"

namespace trainyard::testing::dequantize_nf4 {

// A whole tensor of bytes and groups that are functions of the seed.
struct Packed {
  int64_t rows, columns;
  Array<uint8_t> codes = Bytes({rows, columns / kNf4PerByte}, 1);
  Array<uint8_t> scales = Bytes({rows, columns / kNf4Block}, 2);
  Array<float> groups = Normal<float>({(blocks() + kNf4Group - 1) / kNf4Group + 1}, 3);

  int64_t row_blocks() const { return columns / kNf4Block; }
  int64_t blocks() const { return rows * row_blocks(); }
  static Array<uint8_t> Bytes(const Shape& shape, uint64_t seed) {
    auto bytes = Zeros<uint8_t>(shape);
    for (size_t i = 0; i < bytes.v.size(); ++i) bytes.v[i] = uint8_t(RandomBits(seed, 0, i));
    return bytes;
  }
};

// Each operation is rounded by itself.
template <typename T>
T NumberAt(const Packed& of, int64_t row, int64_t column) {
  const int64_t block = row * of.row_blocks() + column / kNf4Block;
  const uint8_t byte = of.codes.v[size_t((row * of.columns + column) / 2)];
  const float value = kNf4Values[size_t(column % 2 == 0 ? byte >> 4 : byte & 15)];
  const volatile float product =
      Nf4Map()[of.scales.v[size_t(block)]] * of.groups.v[size_t(block / kNf4Group)];
  const volatile float scale = product + of.groups.v.back();
  const volatile float number = value * scale;
  return T(Accumulate<T>(float(number)));
}

// The rows and columns of a tensor that a rank has.
struct Part {
  int64_t row, rows, column, columns;
};

template <typename T>
void ExpectIsTheFormula(const Packed& of, const Part& part) {
  auto codes = Zeros<uint8_t>({part.rows, part.columns / kNf4PerByte});
  auto scales = Zeros<uint8_t>({part.rows, part.columns / kNf4Block});
  auto want = Zeros<T>({part.rows, part.columns});
  for (int64_t i = 0; i < part.rows * part.columns; ++i) {
    const int64_t row = part.row + i / part.columns, column = part.column + i % part.columns;
    const int64_t from = row * of.columns + column;
    codes.v[size_t(i / kNf4PerByte)] = of.codes.v[size_t(from / kNf4PerByte)];
    scales.v[size_t(i / kNf4Block)] = of.scales.v[size_t(from / kNf4Block)];
    want.v[size_t(i)] = NumberAt<T>(of, row, column);
  }
  auto y = Poison<T>({part.rows, part.columns});
  Call(DequantizeNf4Args{.codes = codes,
                         .scales = scales,
                         .groups = of.groups,
                         .first_block = part.row * of.row_blocks() + part.column / kNf4Block,
                         .row_blocks = of.row_blocks(),
                         .y = y},
       3);
  EXPECT_EQ(std::memcmp(y.v.data(), want.v.data(), want.v.size() * sizeof(T)), 0)
      << DTypeOf<T>::value << " of row " << part.row << ", column " << part.column;
  // The last block of each row alone.
  const int64_t skipped = part.columns - kNf4Block;
  auto last = Poison<T>({part.rows, kNf4Block});
  Call(DequantizeNf4Args{.codes = codes,
                         .scales = scales,
                         .groups = of.groups,
                         .first_block = part.row * of.row_blocks() + part.column / kNf4Block,
                         .row_blocks = of.row_blocks(),
                         .y = last,
                         .column = skipped},
       3);
  for (int64_t i = 0; i < part.rows * kNf4Block; ++i) {
    const int64_t at = i / kNf4Block * part.columns + skipped + i % kNf4Block;
    ASSERT_EQ(std::memcmp(&last.v[size_t(i)], &want.v[size_t(at)], sizeof(T)), 0) << i;
  }
}

class DequantizeNf4Test : public ::testing::TestWithParam<Part> {};

TEST_P(DequantizeNf4Test, IsTheFormulaToTheBit) {
  const Packed of = {.rows = 37, .columns = 640};  // Two groups; rows begin within a group.
  ExpectIsTheFormula<double>(of, GetParam());
  ExpectIsTheFormula<float>(of, GetParam());
  ExpectIsTheFormula<bf16>(of, GetParam());
}

// All of it; some rows, from within the first group into the second; some columns; one block.
INSTANTIATE_TEST_SUITE_P(Parts, DequantizeNf4Test,
                         ::testing::Values(Part{0, 37, 0, 640}, Part{23, 9, 0, 640},
                                           Part{0, 37, 320, 128}, Part{31, 1, 576, 64}));

TEST(DequantizeNf4DeathTest, NamesTheArgumentOfWrongShape) {
  const Packed of = {.rows = 2, .columns = 128};
  auto y = Poison<float>({2, 128});
  DequantizeNf4Args args = {.codes = of.codes,
                            .scales = of.scales,
                            .groups = of.groups,
                            .first_block = 0,
                            .row_blocks = 2,
                            .y = y};
  args.first_block = 253;
  EXPECT_DEATH(Call(args), "dequantize_nf4 groups: wanted one for block 256, got 1 groups of 256");
  args.row_blocks = 1;
  EXPECT_DEATH(Call(args), "dequantize_nf4: 2 blocks of a row of 1, from 253");
  args.column = 64;
  EXPECT_DEATH(Call(args), "dequantize_nf4 codes: wanted columns 64 to 192, got 128");
  args.column = 0;
  args.codes = of.scales;
  EXPECT_DEATH(Call(args), "dequantize_nf4 codes: wanted columns 0 to 128, got 4");
}

}  // namespace trainyard::testing::dequantize_nf4
