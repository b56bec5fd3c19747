// The common parts of all kernel benchmarks: operands, and the loop that times a kernel and reports
// its speed. The first argument of a benchmark is the dtype. Threads are OpenMP's default
// (OMP_NUM_THREADS). The device is the CPU, or the GPU with --device=cuda.

#pragma once

#include <omp.h>

#include <map>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "kernels/rates/matrix_rate.h"
#include "kernels/rates/measured_operand.h"
#include "kernels/rates/memory_rate.h"

namespace trainyard::bench {

const Backend& TheBackend();  // bench_main.cc

// Owns the operands of one benchmark.
class Operands {
 public:
  // Integers are zero; other values are as in FillMeasuredOperand.
  Tensor Make(DType dtype, Shape shape) {
    const Tensor tensor = Allocate(dtype, shape);
    if (dtype == DType::kI32) return tensor;
    Exec exec = TheBackend().NewExec(1);
    const absl::Status filled = FillMeasuredOperand(TheBackend(), exec, tensor, buffers_.size());
    CHECK(filled.ok()) << filled;
    return tensor;
  }
  // Memory of any content, for results.
  Tensor Room(DType dtype, Shape shape) { return Allocate(dtype, shape); }
  // Element i is f(i), an int32_t or a float.
  template <typename F>
  Tensor MakeOf(Shape shape, const F& f) {
    using T = decltype(f(int64_t{0}));
    std::vector<T> values;
    for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(f(i));
    const Tensor tensor = Allocate(DTypeOf<T>::value, shape);
    Copy(tensor.data, values.data(), tensor.bytes());
    return tensor;
  }
  StepState* State(const StepState& state) {
    const Tensor bytes = Allocate(DType::kI64, {int64_t(sizeof(StepState) / 8)});
    static_assert(sizeof(StepState) % 8 == 0);
    Copy(bytes.data, &state, sizeof(state));
    return static_cast<StepState*>(bytes.data);
  }

 private:
  static void Copy(void* to, const void* from, size_t bytes) {
    const Exec exec = TheBackend().NewExec(1);
    TheBackend().CopyToDevice(exec, to, from, bytes);
    TheBackend().Synchronize(exec);
  }
  Tensor Allocate(DType dtype, Shape shape) {
    auto buffer = TheBackend().Allocate(size_t(shape.elements()) * SizeOf(dtype));
    CHECK(buffer.ok()) << buffer.status();
    buffers_.push_back(*std::move(buffer));
    return Tensor{{buffers_.back().data(), dtype, shape}};
  }

  std::vector<Buffer> buffers_;
};

// The least work of a call: floating-point operations, and bytes of operands read and written.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// The least seconds that the work can take: products at the machine's matrix rate for the dtype,
// bytes at the rate of its memory (operands that stay in a cache may be faster). Rates are measured
// once.
inline double Bound(const Work& work, DType dtype) {
  const int threads = omp_get_max_threads();
  if (work.flops > 0) {
    static std::map<DType, double> rates;
    double& rate = rates[dtype];
    if (rate == 0) rate = *MeasureMatrixRate(TheBackend(), dtype, threads, absl::Seconds(1));
    return work.flops / rate;
  }
  static const double kRate = *MeasureMemoryRate(TheBackend(), threads);
  return work.bytes / kRate;
}

// Times a kernel. For products, the first argument of the benchmark must be the dtype.
template <typename Args>
void Measure(benchmark::State& state, const Args& args, const Work& work) {
  Exec exec = TheBackend().NewExec(omp_get_max_threads());
  const auto kernel = TheBackend().kernel<Args>();
  const auto begin = TheBackend().NewEvent(), end = TheBackend().NewEvent();
  kernel(exec, args);
  TheBackend().Synchronize(exec);
  for (auto _ : state) {
    begin->Record(exec);
    kernel(exec, args);
    end->Record(exec);
    state.SetIterationTime(end->SecondsSince(*begin));
  }
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
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace trainyard::bench
