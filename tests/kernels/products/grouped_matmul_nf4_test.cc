// Proves products of groups with weights in NF4 (kernels/products/grouped_matmul.h): each is,
// within rounding, the product with the numbers that the weights stand for, also for weights of two
// tensors, for groups without rows, and for more groups than a GPU takes at once. And the parts in
// which a device makes the numbers (nf4_groups.h): whole groups, and columns of one.
#include "kernels/products/nf4_groups.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

Array<uint8_t> Bytes(const Shape& shape, uint64_t seed) {
  auto bytes = Zeros<uint8_t>(shape);
  for (size_t i = 0; i < bytes.v.size(); ++i) bytes.v[i] = uint8_t(RandomBits(seed, 0, i));
  return bytes;
}

// The weights of several groups.
struct Packed {
  int64_t count, tensors, outputs, inputs;
  Array<uint8_t> codes = Bytes({count, outputs, inputs / kNf4PerByte}, 1);
  Array<uint8_t> scales = Bytes({count, outputs, inputs / kNf4Block}, 2);
  Array<float> groups = Normal<float>({count, tensors* of_tensor()}, 3);

  int64_t rows() const { return outputs / tensors; }  // Of a tensor.
  int64_t of_tensor() const {
    return (rows() * (inputs / kNf4Block) + kNf4Group - 1) / kNf4Group + 1;
  }
  // Tensor by tensor.
  template <typename T>
  Array<T> Numbers() const {
    auto numbers = Poison<T>({count, outputs, inputs});
    const ConstTensor all_codes = codes, all_scales = scales, all_groups = groups;
    const int64_t blocks = inputs / kNf4Block;
    for (int64_t i = 0; i < count * tensors; ++i) {
      const int64_t row = i * rows();
      Call(DequantizeNf4Args{
          .codes = {all_codes.as<uint8_t>() + row * inputs / kNf4PerByte,
                    DType::kU8,
                    {rows(), inputs / kNf4PerByte}},
          .scales = {all_scales.as<uint8_t>() + row * blocks, DType::kU8, {rows(), blocks}},
          .groups = {all_groups.as<float>() + i * of_tensor(), DType::kF32, {of_tensor()}},
          .first_block = 0,
          .row_blocks = blocks,
          .y = Tensor{{numbers.v.data() + row * inputs, DTypeOf<T>::value, {rows(), inputs}}}});
    }
    return numbers;
  }
};

// The arguments of both products, with the weights as numbers.
template <typename T>
struct Products {
  Array<T> x, dy, numbers;
  Array<int32_t> offsets;
  Array<T> y, dx;
  GroupedMatMulForwardArgs Forward(Write write) {
    return {.x = x, .weight = numbers, .offsets = offsets, .y = y, .write = write};
  }
  GroupedMatMulInputGradientArgs InputGradient(Write write) {
    return {.dy = dy, .weight = numbers, .offsets = offsets, .dx = dx, .write = write};
  }
};
template <typename T>
Products<T> ProductsOf(const Packed& of, const std::vector<int32_t>& offsets, int64_t bound) {
  return {.x = Normal<T>({bound, of.inputs}, 4),
          .dy = Normal<T>({bound, of.outputs}, 5),
          .numbers = of.Numbers<T>(),
          .offsets = {{of.count + 1}, offsets},
          .y = Filled<T>({bound, of.outputs}, T(3)),
          .dx = Filled<T>({bound, of.inputs}, T(3))};
}

template <typename Args>
Args InNf4(Args args, const Packed& of) {
  args.weight = of.codes;
  args.nf4_scales = of.scales;
  args.nf4_groups = of.groups;
  args.nf4_tensors = of.tensors;
  return args;
}

template <typename T>
void ExpectAreTheProductsWithNumbers(const Packed& of, const std::vector<int32_t>& offsets,
                                     int64_t bound) {
  SCOPED_TRACE(::testing::Message()
               << of.count << " of " << of.outputs << 'x' << of.inputs << ' ' << DTypeOf<T>::value);
  Products<T> want = ProductsOf<T>(of, offsets, bound), got = want;
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    Call(want.Forward(write));
    Call(InNf4(got.Forward(write), of));
    Call(want.InputGradient(write));
    Call(InNf4(got.InputGradient(write), of));
    ExpectClose(Converted<double>(got.y).v, Converted<double>(want.y).v,
                Tolerance(DTypeOf<T>::value, of.inputs));
    ExpectClose(Converted<double>(got.dx).v, Converted<double>(want.dx).v,
                Tolerance(DTypeOf<T>::value, of.outputs));
  }
}

// Tensors of one group and of two, of which the second is not full; and outputs that a CPU's cache
// does not hold at once.
TEST(GroupedMatMulNf4, AreTheProductsWithNumbers) {
  for (const Packed& of : {Packed{4, 2, 96, 128}, Packed{4, 1, 150, 192}, Packed{4, 2, 288, 256}}) {
    ExpectAreTheProductsWithNumbers<double>(of, {1, 6, 6, 9, 40}, 45);
    ExpectAreTheProductsWithNumbers<float>(of, {1, 6, 6, 9, 40}, 45);
    ExpectAreTheProductsWithNumbers<bf16>(of, {1, 6, 6, 9, 40}, 45);
  }
  ExpectAreTheProductsWithNumbers<float>({2, 2, 1600, 448}, {0, 3, 70}, 70);
}

// A GPU has room for 16 of these in f64.
TEST(GroupedMatMulNf4, ThereMayBeMoreThanAPart) {
  const Packed of = {18, 2, 4096, 64};
  EXPECT_EQ(Nf4GroupsOnGpu({.rows = 5, .groups = 18, .columns = 4096, .summed = 64}, 8).groups, 16);
  std::vector<int32_t> offsets(19, 2);
  offsets[0] = 0, offsets[17] = 3, offsets[18] = 5;
  ExpectAreTheProductsWithNumbers<double>(of, offsets, 5);
}

// Of Qwen3-30B-A3B gate and up of five experts at a time, of Mixtral parts of one.
TEST(GroupedMatMulNf4, PartsOnAGpuStayInItsCache) {
  const auto parts = [](const Nf4GroupedProduct& of) {
    const Nf4GroupPart part = Nf4GroupsOnGpu(of, 2);
    return std::pair(part.groups, part.columns);
  };
  EXPECT_EQ(parts({.rows = 65536, .groups = 128, .columns = 1536, .summed = 2048}),
            std::pair(int64_t{5}, int64_t{1536}));
  EXPECT_EQ(parts({.rows = 65536, .groups = 4, .columns = 1536, .summed = 2048}),
            std::pair(int64_t{4}, int64_t{1536}));
  EXPECT_EQ(parts({.rows = 16384, .groups = 8, .columns = 28672, .summed = 4096}),
            std::pair(int64_t{1}, int64_t{4096}))
      << "32 MiB of 224";
}

// Multiplies the parts by loops.
template <typename Args>
std::vector<double> InParts(const Args& args, const Tensor& out, const ConstTensor& in,
                            const Nf4GroupPart& most) {
  const Nf4GroupWeights of = Nf4WeightsOf(args);
  std::vector<double> numbers(size_t(most.groups * most.columns * of.summed()), NAN);
  const int64_t wide = of.columns(), depth = of.summed();
  std::vector<double> result(out.as<double>(), out.as<double>() + out.elements());
  MultiplyNf4Groups(
      of, most, Tensor{{numbers.data(), DType::kF64, {int64_t(numbers.size())}}},
      [&](const DequantizeNf4Args& part) { Call(part); },
      [&](const Nf4NumbersOfGroups& part) {
        const double* const w = part.numbers.template as<double>();
        for (int64_t g = 0; g < part.groups; ++g) {
          const int32_t* const offset = args.offsets.template as<int32_t>() + part.first + g;
          for (int64_t r = offset[0]; r < offset[1]; ++r) {
            for (int64_t c = 0; c < part.columns; ++c) {
              double sum = 0;
              for (int64_t d = 0; d < depth; ++d) {
                const int64_t at = of.forward ? c * depth + d : d * part.columns + c;
                sum += in.as<double>()[r * depth + d] * w[g * part.columns * depth + at];
              }
              result[size_t(r * wide + part.begin + c)] = sum;
            }
          }
        }
      });
  return result;
}

TEST(Nf4Groups, EveryPartIsThatOfTheWholeProduct) {
  const Packed of = {5, 2, 128, 192};
  Products<double> want = ProductsOf<double>(of, {0, 2, 2, 3, 7, 8}, 9);
  const Products<double> before = want;
  Call(want.Forward(Write::kOverwrite));
  Call(want.InputGradient(Write::kOverwrite));
  Products<double> got = before;
  const auto forward = InNf4(got.Forward(Write::kOverwrite), of);
  const auto gradient = InNf4(got.InputGradient(Write::kOverwrite), of);
  for (const Nf4GroupPart& most : {Nf4GroupPart{1, 64}, {2, 128}, {5, 128}, {3, 128}}) {
    ExpectClose(InParts(forward, forward.y, forward.x, most), want.y.v, 1e-12);
  }
  for (const Nf4GroupPart& most : {Nf4GroupPart{1, 64}, {1, 128}, {2, 192}, {5, 192}}) {
    ExpectClose(InParts(gradient, gradient.dx, gradient.dy, most), want.dx.v, 1e-12);
  }
}

TEST(GroupedMatMulNf4DeathTest, NamesTheArgumentOfWrongShape) {
  const Packed of = {2, 2, 96, 128};
  Products<float> products = ProductsOf<float>(of, {0, 1, 2}, 2);
  auto args = InNf4(products.Forward(Write::kOverwrite), of);
  args.nf4_tensors = 1;
  EXPECT_DEATH(Call(args), "grouped_matmul nf4_groups: wanted f32 \\[2, 2\\], got f32 \\[2, 4\\]");
  args.nf4_tensors = 5;
  EXPECT_DEATH(Call(args), "NF4 is tensors of whole blocks of 64, got 5 of 96 outputs and 128");
  args.nf4_tensors = 2;
  args.nf4_scales = of.codes;
  EXPECT_DEATH(Call(args), "grouped_matmul nf4_scales: wanted u8 \\[192, 2\\], got u8 \\[2, 96");
  args.nf4_scales = of.scales;
  const auto numbers = Zeros<float>({2});
  args.x_scales = args.weight_scales = numbers;
  EXPECT_DEATH(Call(args), "grouped_matmul: scales of a weight in NF4");
}

}  // namespace
}  // namespace trainyard::testing
