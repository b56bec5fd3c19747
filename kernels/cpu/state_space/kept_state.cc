// Bound by memory: what is kept of a text is read and written once for each of its tokens. Threads
// divide channels and heads, which do not depend on each other.

#include "kernels/state_space/kept_state.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Convolve(Exec& exec, const KeptConvArgs& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.x.shape.rows(), channels = args.x.shape.back();
  const int64_t taps = args.weight.shape.back(), before = taps - 1;
  ParallelRanges(exec, channels, tokens * taps, 16, [=, &args](int64_t begin, int64_t end) {
    const T *const weight = args.weight.as<T>(), *const bias = args.bias.as<T>();
    for (int64_t t = 0; t < tokens; ++t) {
      const KeptPlace at(args.rows.as<int32_t>()[t], args.text_rows);
      const T* const x = args.x.as<T>() + t * channels;
      T* const y = args.y.as<T>() + t * channels;
      if (at.text < 0) {
        std::fill(y + begin, y + end, T(0.0f));
        continue;
      }
      T* const kept = args.kept.as<T>() + at.text * before * channels;
      for (int64_t c = begin; c < end; ++c) {
        A sum = A(bias[c]);
        for (int64_t k = 0; k < before; ++k) {
          T& row = kept[k * channels + c];
          if (at.begins) row = T(0.0f);
          sum += A(weight[c * taps + k]) * A(row);
          if (k > 0) kept[(k - 1) * channels + c] = row;
        }
        sum += A(weight[c * taps + before]) * A(x[c]);
        kept[(before - 1) * channels + c] = x[c];
        y[c] = T(sum * Sigmoid(sum));
      }
    }
  });
}

template <typename T>
void Scan(Exec& exec, const KeptScanArgs& args) {
  using A = Accumulate<T>;
  const StateDims& dims = args.dims;
  const int64_t tokens = args.xbc.shape.rows(), n = dims.state, p = dims.head_dim;
  const auto head_range = [=, &args, &dims](int64_t begin, int64_t end) {
    const A least = A(dims.min_step), most = A(dims.max_step);
    for (int64_t h = begin; h < end; ++h) {
      const int64_t group = h / (dims.heads / dims.groups);
      const A decay = -std::exp(args.a_log.as<A>()[h]), d = args.d.as<A>()[h];
      const A bias = args.dt_bias.as<A>()[h];
      for (int64_t t = 0; t < tokens; ++t) {
        const KeptPlace at(args.rows.as<int32_t>()[t], args.text_rows);
        const T* const xbc = args.xbc.as<T>() + t * dims.columns();
        const T *const x = xbc + h * p, *const b = xbc + dims.inner() + group * n;
        const T* const c = b + dims.groups * n;
        T* const y = args.y.as<T>() + t * dims.inner() + h * p;
        if (at.text < 0) {
          std::fill_n(y, p, T(0.0f));
          continue;
        }
        A* const state = args.kept.as<A>() + at.text * dims.state_columns() + h * n * p;
        if (at.begins) std::fill_n(state, n * p, A(0));
        const A soft = Softplus(A(args.dt.as<T>()[t * dims.heads + h]) + bias);
        const A step = std::min(std::max(soft, least), most), keep = std::exp(decay * step);
        // Wide heads are computed in pieces.
        constexpr int64_t kPiece = 64;
        for (int64_t first = 0; first < p; first += kPiece) {
          const int64_t count = std::min(kPiece, p - first);
          A in[kPiece], out[kPiece];
          for (int64_t i = 0; i < count; ++i) in[i] = step * A(x[first + i]), out[i] = 0;
          for (int64_t j = 0; j < n; ++j) {
            A* const row = state + j * p + first;
            const A write = A(b[j]), read = A(c[j]);
#pragma omp simd
            for (int64_t i = 0; i < count; ++i) {
              row[i] = keep * row[i] + write * in[i];
              out[i] += read * row[i];
            }
          }
          for (int64_t i = 0; i < count; ++i) y[first + i] = T(out[i] + d * A(x[first + i]));
        }
      }
    }
  };
  ParallelRanges(exec, dims.heads, tokens * n * p, 1, head_range);
}

}  // namespace

void KeptConv(Exec& exec, const KeptConvArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Convolve<decltype(scalar)>(exec, args); });
}

void KeptScan(Exec& exec, const KeptScanArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) { Scan<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
