#include "kernels/products/dequantize_nf4.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void DequantizeNf4(Exec& exec, const DequantizeNf4Args& args) {
  static constexpr std::array<float, 256> kMap = Nf4Map();
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t k = args.y.shape.back(), blocks = k / kNf4Block;
    const float* const groups = args.groups.as<float>();
    const float mean = groups[args.groups.elements() - 1];
    ParallelRows(exec, args.y.shape.rows(), k, [=, &args](int64_t begin, int64_t end) {
      for (int64_t block = begin * blocks; block < end * blocks; ++block) {
        const int64_t row = block / blocks;
        const int64_t number = args.first_block + row * args.row_blocks + block % blocks;
        const float scale =
            Nf4Scale(kMap[args.scales.as<uint8_t>()[block]], groups[number / kNf4Group], mean);
        const uint8_t* const codes = args.codes.as<uint8_t>() + block * kNf4Block / kNf4PerByte;
        T* const y = args.y.as<T>() + block * kNf4Block;
        for (int64_t i = 0; i < kNf4Block / kNf4PerByte; ++i) {
          y[2 * i] = T(kNf4Values[codes[i] >> 4] * scale);
          y[2 * i + 1] = T(kNf4Values[codes[i] & 15] * scale);
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
