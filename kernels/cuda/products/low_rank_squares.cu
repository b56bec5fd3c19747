// Bound by the arithmetic of the rank: an element of the weight costs R multiplications, with an
// element of a that comes from the cache. A block takes some rows, so that an element of a serves
// all of them; a thread takes packs of columns, and the block adds the threads' squares.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/products/low_rank_squares.h"

namespace trainyard::cuda {
namespace {

constexpr int kRows = 4;  // Of a block.
constexpr int kThreads = 256;

template <typename T>
struct Operands {
  const T* w;
  const T* a;
  const T* b;
  Accumulate<T>* squares;
  int64_t n, k, r;
  Accumulate<T> scale;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) SquaresKernel(Operands<T> of) {
  using A = Accumulate<T>;
  A* const b = DynamicShared<A>();  // [R, kRows]
  const int64_t first = int64_t(blockIdx.x) * kRows;
  for (int i = int(threadIdx.x); i < of.r * kRows; i += kThreads) {
    const int64_t row = first + i % kRows;
    b[i] = row < of.n ? A(of.b[row * of.r + i / kRows]) : A(0);
  }
  __syncthreads();
  A squares[2 * kRows] = {};
  for (int64_t c = int64_t(threadIdx.x) * kCount; c < of.k; c += kThreads * kCount) {
    A added[kRows][kCount] = {};
#pragma unroll 2  // More would spill registers of f64.
    for (int64_t j = 0; j < of.r; ++j) {
      const auto a = LoadPack<T, kCount>(of.a + j * of.k + c);
      for (int i = 0; i < kRows; ++i) {
        const A factor = b[j * kRows + i];
        for (int m = 0; m < kCount; ++m) added[i][m] += factor * A(a.v[m]);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      if (first + i >= of.n) break;
      const auto w = LoadPack<T, kCount>(of.w + (first + i) * of.k + c);
      for (int m = 0; m < kCount; ++m) {
        const A own = A(w.v[m]), sum = own + of.scale * added[i][m];
        squares[2 * i] += own * own;
        squares[2 * i + 1] += sum * sum;
      }
    }
  }
  BlockSums(squares);
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 2 * kRows; ++i) {
    if (first + i / 2 < of.n) of.squares[2 * first + i] = squares[i];
  }
}

}  // namespace

void LowRankSquares(Exec& exec, const LowRankSquaresArgs& args) {
  DispatchFloat(args.w.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const Operands<T> of = {.w = args.w.as<T>(),
                            .a = args.a.as<T>(),
                            .b = args.b.as<T>(),
                            .squares = args.squares.as<A>(),
                            .n = args.w.shape.rows(),
                            .k = args.w.shape.back(),
                            .r = args.b.shape.back(),
                            .scale = A(args.scale)};
    const Grid grid = {CeilDiv(of.n, kRows), kThreads, size_t(of.r * kRows) * sizeof(A)};
    const bool packed = CanPack<T>(of.k, of.w, of.a);
    Launch(exec, grid, packed ? SquaresKernel<T, kPackOf<T>> : SquaresKernel<T, 1>, of);
  });
}

}  // namespace trainyard::cuda
