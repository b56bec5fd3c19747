// Bound by memory: half a byte is read and two are written for a number in bf16. A thread makes 8
// numbers, whose codes are one word, so that the threads of a warp write neighbouring accesses of
// 16 bytes. The 16 values lie in 16 banks of shared memory, where lanes never meet but at one
// address; the 8 threads of a block of numbers read the same scale.

#include <limits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row.h"
#include "kernels/products/dequantize_nf4.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNumbers = 8;                           // Of a thread at a time.
constexpr int kPerBlock = int(kNf4Block) / kNumbers;  // Threads of a block of numbers.

struct Tables {
  float values[16];
  float map[256];
};
constexpr Tables TablesOf() {
  Tables tables = {};
  for (size_t i = 0; i < 16; ++i) tables.values[i] = kNf4Values[i];
  const std::array<float, 256> map = Nf4Map();
  for (size_t i = 0; i < 256; ++i) tables.map[i] = map[i];
  return tables;
}

template <typename T>
struct Operands {
  const uint32_t* codes;
  const uint8_t* scales;
  const float* groups;
  T* y;
  int count;    // Threads' pieces of kNumbers.
  int blocks;   // Of a row of y.
  int stored;   // Of a row of codes.
  int skipped;  // Of these, before the first one of y.
  int mean;     // Its place among the groups of a tensor.
  int row, tensor_rows;
  int64_t first_block, row_blocks;
};

// Stores kNumbers numbers, in accesses of 16 bytes.
template <typename T>
__device__ void Store(T* to, const float (&numbers)[kNumbers]) {
  constexpr int kCount = kPackOf<T>;
#pragma unroll
  for (int first = 0; first < kNumbers; first += kCount) {
    Pack<T, kCount> pack;
#pragma unroll
    for (int n = 0; n < kCount; ++n) pack.v[n] = T(numbers[first + n]);
    StoreRow(to + first, pack);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) DequantizeKernel(Operands<T> of, Tables tables) {
  __shared__ Tables shared;
  shared.map[threadIdx.x] = tables.map[threadIdx.x];
  if (threadIdx.x < 16) shared.values[threadIdx.x] = tables.values[threadIdx.x];
  __syncthreads();
  const int stride = int(gridDim.x) * kThreads;
  for (int i = int(blockIdx.x) * kThreads + int(threadIdx.x); i < of.count; i += stride) {
    const int block = i / kPerBlock, row = block / of.blocks;
    const int column = of.skipped + block % of.blocks, at = row * of.stored + column;
    const uint32_t codes = of.codes[int64_t(at) * kPerBlock + i % kPerBlock];
    const int tensor = (of.row + row) / of.tensor_rows;
    const int64_t of_row = (of.row + row - tensor * of.tensor_rows) * of.row_blocks;
    const int64_t number = of.first_block + of_row + column;
    const float* const groups = of.groups + int64_t(tensor) * (of.mean + 1);
    const float scale =
        Nf4Scale(shared.map[of.scales[at]], groups[number / kNf4Group], groups[of.mean]);
    float numbers[kNumbers];
#pragma unroll
    for (int n = 0; n < kNumbers; ++n) {
      // Bytes ascend from the word's lower end, and the first code of a byte is its upper half.
      const int shift = n / 2 * 8 + (n % 2 == 0 ? 4 : 0);
      numbers[n] = shared.values[codes >> shift & 15] * scale;
    }
    Store(of.y + int64_t(i) * kNumbers, numbers);
  }
}

}  // namespace

void DequantizeNf4(Exec& exec, const DequantizeNf4Args& args) {
  static constexpr Tables kTables = TablesOf();
  const int64_t count = args.y.elements() / kNumbers;
  // Loops count in 32 bits and may go one stride beyond the end.
  CHECK(count < std::numeric_limits<int>::max() - kMaxBlocks * kThreads &&
        args.groups.elements() <= std::numeric_limits<int>::max() &&
        args.scales.elements() <= std::numeric_limits<int>::max() &&
        args.row + args.y.shape.rows() <= std::numeric_limits<int>::max())
      << "dequantize_nf4 y: wanted less than 2^33 numbers, got " << args.y.shape;
  CHECK(reinterpret_cast<uintptr_t>(args.codes.data) % sizeof(uint32_t) == 0 &&
        reinterpret_cast<uintptr_t>(args.y.data) % 16 == 0)
      << "dequantize_nf4: an operand is not aligned";
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Operands<T> of = {
        .codes = static_cast<const uint32_t*>(args.codes.data),
        .scales = args.scales.as<uint8_t>(),
        .groups = args.groups.as<float>(),
        .y = args.y.as<T>(),
        .count = int(count),
        .blocks = int(args.y.shape.back() / kNf4Block),
        .stored = int(args.scales.shape.back()),
        .skipped = int(args.column / kNf4Block),
        .mean = int(args.groups.shape.back() - 1),
        .row = int(args.row),
        .tensor_rows = int(args.tensor_rows > 0 ? args.tensor_rows : args.y.shape.rows()),
        .first_block = args.first_block,
        .row_blocks = args.row_blocks};
    const int64_t blocks = std::min(CeilDiv(count, kThreads), kMaxBlocks);
    Launch(exec, {blocks, kThreads}, DequantizeKernel<T>, of, kTables);
  });
}

}  // namespace trainyard::cuda
