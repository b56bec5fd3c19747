#include "kernels/attention/rope.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

double Scaled(double frequency, const Llama3RopeScaling& scaling) {
  if (scaling.factor == 0) return frequency;
  const double wavelength = 2 * M_PI / frequency, context = double(scaling.original_context);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / scaling.factor;
  const double smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The scaled frequency of pair `i`.
double Stretched(double frequency, int64_t i, const YarnRamp& ramp, double factor) {
  const double m = std::clamp((double(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return (1 - m) * frequency + m * frequency / factor;
}

template <typename T>
void Rotate(const Exec& exec, const RopeArgs& args) {
  using A = Accumulate<T>;
  const int64_t half = args.cos.shape.back(), sequence = args.sequence;
  const int64_t rotated = args.heads + args.kv_heads, d = args.head_dim;
  const int64_t width = args.x.shape.back();
  const A* cos_table = args.cos.as<A>();
  const A* sin_table = args.sin.as<A>();
  const A sign = args.inverse ? A(-1) : A(1);
  const T* x_data = args.x.as<T>();
  T* y_data = args.y.as<T>();
  ParallelRows(exec, args.x.shape.rows(), width, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * width;
      T* y = y_data + t * width;
      const A* cos = cos_table + t % sequence * half;
      const A* sin = sin_table + t % sequence * half;
      for (int64_t head = 0; head < rotated; ++head, x += d, y += d) {
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
          const A first = x[i], second = x[i + half], s = sign * sin[i];
          y[i] = T(first * cos[i] - second * s);
          y[i + half] = T(second * cos[i] + first * s);
        }
        if (x != y) std::copy_n(x + 2 * half, d - 2 * half, y + 2 * half);
      }
      if (x != y) std::copy_n(x, width - rotated * d, y);
    }
  });
}

}  // namespace

void RopeTable(Exec&, const RopeTableArgs& args) {
  const int64_t half = args.cos.shape.back(), rows = args.cos.shape.rows();
  const bool yarn = args.yarn.factor > 0;
  const YarnRamp ramp = yarn ? RampOf(args.yarn, args.base, half) : YarnRamp{0, 0, 1};
  const auto write = [&](auto* cos, auto* sin) {
    using T = std::remove_pointer_t<decltype(cos)>;
    for (int64_t i = 0; i < half; ++i) {
      double frequency = Scaled(std::pow(args.base, -double(i) / double(half)), args.scaling);
      if (yarn) frequency = Stretched(frequency, i, ramp, args.yarn.factor);
      for (int64_t s = 0; s < rows; ++s) {
        const double angle = double(args.part.position(s)) * frequency;
        cos[s * half + i] = T(ramp.magnitude * std::cos(angle));
        sin[s * half + i] = T(ramp.magnitude * std::sin(angle));
      }
    }
  };
  if (args.cos.dtype == DType::kF64) {
    write(args.cos.as<double>(), args.sin.as<double>());
  } else {
    write(args.cos.as<float>(), args.sin.as<float>());
  }
}

void Rope(Exec& exec, const RopeArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Rotate<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
