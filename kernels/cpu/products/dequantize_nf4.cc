// The 16 numbers that a block can have are computed once, and its codes choose among them.

#include "kernels/products/dequantize_nf4.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void DequantizeNf4(Exec& exec, const DequantizeNf4Args& args) {
  static constexpr std::array<float, 256> kMap = Nf4Map();
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t width = args.y.shape.back(), blocks = width / kNf4Block;
    const int64_t stored = args.scales.shape.back(), skipped = args.column / kNf4Block;
    const float* const groups = args.groups.as<float>();
    const int64_t of_tensor = args.groups.shape.back();  // Its groups, and its mean.
    const int64_t rows = args.tensor_rows > 0 ? args.tensor_rows : args.y.shape.rows();
    ParallelRows(exec, args.y.shape.rows(), width, [=, &args](int64_t begin, int64_t end) {
      for (int64_t block = begin * blocks; block < end * blocks; ++block) {
        const int64_t row = block / blocks, column = skipped + block % blocks;
        const int64_t in_stack = args.row + row, tensor = in_stack / rows;
        const int64_t of_row = in_stack % rows * args.row_blocks;
        const int64_t number = args.first_block + of_row + column;
        const int64_t at = row * stored + column;
        const float* const own = groups + tensor * of_tensor;
        const float scale = Nf4Scale(kMap[args.scales.as<uint8_t>()[at]], own[number / kNf4Group],
                                     own[of_tensor - 1]);
        T numbers[16];
        for (size_t i = 0; i < 16; ++i) numbers[i] = T(kNf4Values[i] * scale);
        const uint8_t* const codes = args.codes.as<uint8_t>() + at * kNf4Block / kNf4PerByte;
        T* const y = args.y.as<T>() + block * kNf4Block;
        for (int64_t i = 0; i < kNf4Block / kNf4PerByte; ++i) {
          y[2 * i] = numbers[codes[i] >> 4];
          y[2 * i + 1] = numbers[codes[i] & 15];
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
