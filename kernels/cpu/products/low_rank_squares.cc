#include "kernels/products/low_rank_squares.h"

#include <array>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kRows = 4;       // Rows that share what is read of a.
constexpr int64_t kColumns = 256;  // Columns whose sums over the rank stay in the first cache.

template <typename T>
struct Operands {
  using A = Accumulate<T>;
  const T *w, *a, *b;
  A* squares;
  int64_t k, r;
  A scale;
};

// Adds the terms of columns [first, first + count) of row n, whose sums over the rank are `added`.
template <typename T, typename A>
void AddSquares(const Operands<T>& of, int64_t n, int64_t first, int64_t count, const A* added) {
  const T* const w = of.w + n * of.k + first;
  A alone = 0, adapted = 0;
#pragma omp simd reduction(+ : alone, adapted)
  for (int64_t c = 0; c < count; ++c) {
    const A own = A(w[c]), sum = own + of.scale * added[c];
    alone += own * own;
    adapted += sum * sum;
  }
  of.squares[2 * n] += alone;
  of.squares[2 * n + 1] += adapted;
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
                            .k = args.w.shape.back(),
                            .r = args.b.shape.back(),
                            .scale = A(args.scale)};
    // Ranges begin at multiples of kRows, so the same rows are together for any thread count.
    ParallelRanges(exec, args.w.shape.rows(), of.k * of.r, kRows, [=](int64_t begin, int64_t end) {
      std::array<std::array<A, kColumns>, kRows> added;
      for (int64_t n = begin; n < end; n += kRows) {
        const int64_t rows = std::min(kRows, end - n);
        std::fill_n(of.squares + 2 * n, 2 * rows, A(0));
        for (int64_t first = 0; first < of.k; first += kColumns) {
          const int64_t count = std::min(kColumns, of.k - first);
          for (auto& row : added) row.fill(0);
          for (int64_t j = 0; j < of.r; ++j) {
            const T* const a = of.a + j * of.k + first;
            for (int64_t i = 0; i < rows; ++i) {
              const A factor = A(of.b[(n + i) * of.r + j]);
              A* const sums = added[size_t(i)].data();
#pragma omp simd
              for (int64_t c = 0; c < count; ++c) sums[c] += factor * A(a[c]);
            }
          }
          for (int64_t i = 0; i < rows; ++i) {
            AddSquares<T, A>(of, n + i, first, count, added[size_t(i)].data());
          }
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
