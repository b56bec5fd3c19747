// What every benchmark of a kernel needs: operands, and the loop that times it and says how fast it
// ran. Dtypes are the first argument of a benchmark; threads are OpenMP's default
// (OMP_NUM_THREADS).

#pragma once

#include <omp.h>

#include <map>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/device/backend.h"
#include "kernels/fill.h"
#include "kernels/matrix_rate.h"
#include "kernels/memory_rate.h"

namespace trainyard::bench {

// Owns the operands of one benchmark, filled with 0.5.
class Operands {
 public:
  Tensor Make(DType dtype, Shape shape) {
    auto buffer = CpuBackend().Allocate(size_t(shape.elements()) * SizeOf(dtype));
    CHECK(buffer.ok()) << buffer.status();
    buffers_.push_back(*std::move(buffer));
    const Tensor tensor{{buffers_.back().data(), dtype, shape}};
    Exec exec;
    if (dtype != DType::kI32) CpuBackend().kernel<FillArgs>()(exec, {.y = tensor, .value = 0.5});
    return tensor;
  }

 private:
  std::vector<Buffer> buffers_;
};

// The least work a call does: floating-point operations, and bytes of operands read and written.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// The least seconds that the work takes: products at the machine's matrix rate of the dtype, bytes
// at the rate of its memory (operands that stay in a cache may be faster). Rates are measured once.
inline double Bound(const Work& work, DType dtype) {
  const int threads = omp_get_max_threads();
  if (work.flops > 0) {
    static std::map<DType, double> rates;
    double& rate = rates[dtype];
    if (rate == 0) rate = *MeasureMatrixRate(CpuBackend(), dtype, threads, absl::Seconds(1));
    return work.flops / rate;
  }
  static const double kRate = *MeasureMemoryRate(CpuBackend(), threads);
  return work.bytes / kRate;
}

// Products have their dtype as the first argument of the benchmark.
template <typename Args>
void Measure(benchmark::State& state, const Args& args, const Work& work) {
  Exec exec{.threads = omp_get_max_threads()};
  const auto kernel = CpuBackend().kernel<Args>();
  kernel(exec, args);
  for (auto _ : state) kernel(exec, args);
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (work.flops > 0) state.counters["GFLOP/s"] = rate(work.flops);
  if (work.bytes > 0) state.counters["GB/s"] = rate(work.bytes);
  state.counters["of_bound"] =
      rate(1e9 * Bound(work, work.flops > 0 ? DType(state.range(0)) : DType::kF32));
}

inline DType DTypeArg(benchmark::State& state) {
  const DType dtype = DType(state.range(0));
  state.SetLabel(Name(dtype));
  return dtype;
}

inline void Trained(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(int64_t(DType::kF32))->Arg(int64_t(DType::kBF16));
  benchmark->UseRealTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace trainyard::bench
