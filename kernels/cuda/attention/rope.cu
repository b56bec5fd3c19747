#include <cmath>

#include "kernels/attention/rope.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"

namespace trainyard::cuda {
namespace {

__device__ double Scaled(double frequency, const Llama3RopeScaling& scaling) {
  if (scaling.factor == 0) return frequency;
  const double wavelength = 2 * M_PI / frequency, context = double(scaling.original_context);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / scaling.factor;
  const double smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The scaled frequency of pair `i`.
__device__ double Stretched(double frequency, int64_t i, const YarnRamp& ramp, double factor) {
  const double along = (double(i) - ramp.low) / (ramp.high - ramp.low);
  const double m = along < 0 ? 0 : along > 1 ? 1 : along;
  return (1 - m) * frequency + m * frequency / factor;
}

template <typename A>
struct TableBody {
  A* cos;
  A* sin;
  int64_t half;
  double base;
  SequencePart part;
  Llama3RopeScaling scaling;
  double yarn;  // The factor; 0: none.
  YarnRamp ramp;

  __device__ void operator()(int64_t i) const {
    const double exponent = -double(i % half) / double(half);
    double frequency = Scaled(std::pow(base, exponent), scaling);
    if (yarn > 0) frequency = Stretched(frequency, i % half, ramp, yarn);
    const double angle = double(part.position(i / half)) * frequency;
    cos[i] = A(ramp.magnitude * std::cos(angle));
    sin[i] = A(ramp.magnitude * std::sin(angle));
  }
};

template <typename A>
void Table(Exec& exec, const RopeTableArgs& args) {
  const int64_t half = args.cos.shape.back();
  const double yarn = args.yarn.factor;
  const TableBody<A> body = {.cos = args.cos.as<A>(),
                             .sin = args.sin.as<A>(),
                             .half = half,
                             .base = args.base,
                             .part = args.part,
                             .scaling = args.scaling,
                             .yarn = yarn,
                             .ramp = yarn > 0 ? RampOf(args.yarn, args.base, half)
                                              : YarnRamp{.low = 0, .high = 0, .magnitude = 1}};
  ForEach(exec, args.cos.elements(), body);
}

// Processes a row: the pairs of all rotated heads, one head after the other, then the columns to
// copy: those that each head has after its pairs, and those after the heads.
template <typename T>
struct RopeBody {
  using A = Accumulate<T>;
  const T* x;
  const A* cos;
  const A* sin;
  T* y;
  int64_t width, half, head_dim, heads, sequence;
  A sign;

  __device__ int64_t pairs() const { return heads * half; }

  // The place in a row of the n-th column to copy.
  __device__ int64_t Copied(int64_t n) const {
    const int64_t rest = head_dim - 2 * half;
    if (n >= heads * rest) return 2 * pairs() + n;
    return n / rest * head_dim + 2 * half + n % rest;
  }

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t c) const {
    if (c >= pairs()) {
      const int64_t at = t * width + Copied(c - pairs());
      return StoreRow(y + at, LoadPack<T, kCount>(x + at));
    }
    const int64_t head = uint32_t(c) / uint32_t(half);  // No row has 2^32 elements.
    const int64_t i = c - head * half;
    const int64_t first = t * width + head * head_dim + i, angle = t % sequence * half + i;
    const auto firsts = LoadPack<T, kCount>(x + first),
               seconds = LoadPack<T, kCount>(x + first + half);
    const auto coss = LoadPack<A, kCount>(cos + angle), sins = LoadPack<A, kCount>(sin + angle);
    Pack<T, kCount> to_first, to_second;
    for (int n = 0; n < kCount; ++n) {
      const A a = firsts.v[n], b = seconds.v[n], s = sign * sins.v[n];
      to_first.v[n] = T(a * coss.v[n] - b * s);
      to_second.v[n] = T(b * coss.v[n] + a * s);
    }
    StoreRow(y + first, to_first);
    StoreRow(y + first + half, to_second);
  }
};

}  // namespace

void RopeTable(Exec& exec, const RopeTableArgs& args) {
  args.cos.dtype == DType::kF64 ? Table<double>(exec, args) : Table<float>(exec, args);
}

// Bound by memory. All heads of a token read the same row of the table, which comes from the cache.
void Rope(Exec& exec, const RopeArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t half = args.cos.shape.back();
    const RopeBody<T> body = {.x = args.x.as<T>(),
                              .cos = args.cos.as<A>(),
                              .sin = args.sin.as<A>(),
                              .y = args.y.as<T>(),
                              .width = args.x.shape.back(),
                              .half = half,
                              .head_dim = args.head_dim,
                              .heads = args.heads + args.kv_heads,
                              .sequence = args.sequence,
                              .sign = args.inverse ? A(-1) : A(1)};
    const int64_t pairs = body.heads * half;
    const int64_t copied = args.x.data == args.y.data ? 0 : body.width - 2 * pairs;
    const bool packs = CanPack<T>(half, body.x, body.cos, body.sin, body.y) &&
                       CanPack<T>(args.head_dim) && CanPack<T>(body.width);
    ForEachPackOfRows<T>(exec, args.x.shape.rows(), pairs + copied, packs, body);
  });
}

}  // namespace trainyard::cuda
