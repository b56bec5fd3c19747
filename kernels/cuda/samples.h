// How kernels sum over the rows of each sample: blocks take runs of rows, of which none reaches
// over two samples, and leave the runs' sums in scratch memory; AddRunsOfSamples adds those up, the
// same bits every time.

#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/sample_rows.h"

namespace trainyard::cuda {

struct SampleRuns {
  SampleRows of;
  int64_t rows;     // Of the matrix.
  int64_t columns;  // Of the matrix.
  int64_t samples;
  int64_t runs;    // Of each sample; those beyond its rows are empty.
  int64_t length;  // Rows of a run; the last of a sample may have fewer.

  int64_t all() const { return samples * runs; }
  __device__ int64_t sample(int64_t run) const { return run / runs; }
  __device__ int64_t begin(int64_t run) const {
    return of.begin_of(sample(run), rows) + run % runs * length;
  }
  __device__ int64_t end(int64_t run) const {
    const int64_t last = of.begin_of(sample(run) + 1, rows), end = begin(run) + length;
    return end < last ? end : last;
  }
};

// About `most` runs, and at least one of each sample.
inline SampleRuns InRunsOfSamples(const Shape& x, const SampleRows& of, int64_t samples,
                                  int64_t most) {
  const int64_t wanted = std::max<int64_t>(1, most / samples);
  const int64_t length = CeilDiv(of.per_sample, std::min(wanted, of.per_sample));
  return {.of = of,
          .rows = x.rows(),
          .columns = x.back(),
          .samples = samples,
          .runs = CeilDiv(of.per_sample, length),
          .length = length};
}

// Sum c of a sample, in tensors of [samples, columns] side by side.
template <typename T, int kTensors>
struct SampleOutputs {
  T* y[kTensors];
  int64_t columns;

  __device__ void operator()(int64_t sample, int64_t c, Accumulate<T> sum) const {
    T* to = y[0] + c;
    for (int i = 1; i < kTensors; ++i) {
      if (c >= i * columns) to = y[i] + (c - i * columns);
    }
    to[sample * columns] = T(sum);
  }
};

// Adds up the sums that the runs wrote to `sums` [runs, kTensors * columns], and writes them to y.
template <typename T, int kTensors>
void AddRunsOfSamples(Exec& exec, const Accumulate<T>* sums, const SampleRuns& runs,
                      const SampleOutputs<T, kTensors>& y) {
  constexpr int kWidth = 8;
  SumRuns(exec, sums, RowRuns{runs.all(), kTensors * runs.columns, runs.runs}, kWidth, y);
}

}  // namespace trainyard::cuda
