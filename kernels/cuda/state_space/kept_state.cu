// Bound by memory. A thread has a channel of the convolution, or a column of a head's state, and
// goes through the tokens.

#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/state_space/kept_state.h"

namespace trainyard::cuda {
namespace {

struct Texts {
  const int32_t* rows;
  int64_t tokens, text_rows;
  __device__ KeptPlace At(int64_t t) const { return KeptPlace(rows[t], text_rows); }
};

template <typename T>
struct ConvBody {
  Texts texts;
  const T *x, *weight, *bias;
  T *kept, *y;
  int64_t channels, taps;

  __device__ void operator()(int64_t c) const {
    using A = Accumulate<T>;
    const int64_t before = taps - 1;
#pragma unroll 1
    for (int64_t t = 0; t < texts.tokens; ++t) {
      const KeptPlace at = texts.At(t);
      if (at.text < 0) {
        y[t * channels + c] = T(0.0f);
        continue;
      }
      T* const of_text = kept + at.text * before * channels + c;
      A sum = A(bias[c]);
#pragma unroll 1
      for (int64_t k = 0; k < before; ++k) {
        const T row = at.begins ? T(0.0f) : of_text[k * channels];
        sum += A(weight[c * taps + k]) * A(row);
        if (k > 0) of_text[(k - 1) * channels] = row;
      }
      const T last = x[t * channels + c];
      sum += A(weight[c * taps + before]) * A(last);
      of_text[(before - 1) * channels] = last;
      y[t * channels + c] = T(sum * Sigmoid(sum));
    }
  }
};

template <typename T>
struct Scan {
  using A = Accumulate<T>;
  Texts texts;
  const T *xbc, *dt;
  const A *dt_bias, *a_log, *d;
  A* kept;
  T* y;
  int64_t heads, groups, head_dim, state;
  A least, most;
};

constexpr int kThreads = 64;

// Rows of a state that a thread loads together. In f64 more of them do not fit into registers.
template <typename A>
constexpr int kRowsAtOnce = sizeof(A) == 4 ? 4 : 1;

// A block has a head.
template <typename T>
__global__ void __launch_bounds__(kThreads) ScanKernel(Scan<T> args) {
  using A = Accumulate<T>;
  [[maybe_unused]] constexpr int kAtOnce = kRowsAtOnce<A>;
  const int64_t h = blockIdx.x, n = args.state, p = args.head_dim, inner = args.heads * p;
  const int64_t group = h / (args.heads / args.groups);
  const int64_t columns = inner + 2 * args.groups * n;
  const A decay = -std::exp(args.a_log[h]), d = args.d[h], bias = args.dt_bias[h];
#pragma unroll 1
  for (int64_t t = 0; t < args.texts.tokens; ++t) {
    const KeptPlace at = args.texts.At(t);
    const T* const b = args.xbc + t * columns + inner + group * n;
    const T* const c = b + args.groups * n;
    const A raw = A(args.dt[t * args.heads + h]) + bias;
    const A soft = std::fmax(raw, A(0)) + std::log1p(std::exp(-std::fabs(raw)));
    const A step = soft < args.least ? args.least : soft > args.most ? args.most : soft;
    const A keep = std::exp(decay * step);
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < p; i += kThreads) {
      T* const y = args.y + t * inner + h * p + i;
      if (at.text < 0) {
        *y = T(0.0f);
        continue;
      }
      A* const column = args.kept + (at.text * args.heads + h) * n * p + i;
      const A x = A(args.xbc[t * columns + h * p + i]), in = step * x;
      A out = 0;
#pragma unroll kAtOnce
      for (int64_t j = 0; j < n; ++j) {
        const A before = at.begins ? A(0) : column[j * p];
        const A now = keep * before + A(b[j]) * in;
        column[j * p] = now;
        out += A(c[j]) * now;
      }
      *y = T(out + d * x);
    }
  }
}

template <typename Args>
Texts TextsOf(const Args& args) {
  return {args.rows.template as<int32_t>(), args.rows.elements(), args.text_rows};
}

}  // namespace

void KeptConv(Exec& exec, const KeptConvArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    ForEach(exec, args.x.shape.back(),
            ConvBody<T>{.texts = TextsOf(args),
                        .x = args.x.as<T>(),
                        .weight = args.weight.as<T>(),
                        .bias = args.bias.as<T>(),
                        .kept = args.kept.as<T>(),
                        .y = args.y.as<T>(),
                        .channels = args.x.shape.back(),
                        .taps = args.weight.shape.back()});
  });
}

void KeptScan(Exec& exec, const KeptScanArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const StateDims& dims = args.dims;
    Launch(exec, {dims.heads, kThreads}, ScanKernel<T>,
           Scan<T>{.texts = TextsOf(args),
                   .xbc = args.xbc.as<T>(),
                   .dt = args.dt.as<T>(),
                   .dt_bias = args.dt_bias.as<A>(),
                   .a_log = args.a_log.as<A>(),
                   .d = args.d.as<A>(),
                   .kept = args.kept.as<A>(),
                   .y = args.y.as<T>(),
                   .heads = dims.heads,
                   .groups = dims.groups,
                   .head_dim = dims.head_dim,
                   .state = dims.state,
                   .least = A(dims.min_step),
                   .most = A(dims.max_step)});
  });
}

}  // namespace trainyard::cuda
