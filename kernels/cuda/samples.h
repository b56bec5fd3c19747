// Sums over the rows of each sample, for kernels. The rows are cut into runs, and no run has rows
// of two samples. Each block sums one run and writes the run's sums to scratch memory.
// AddRunsOfSamples adds the sums of the runs in a fixed order, so the bits are the same every time.

#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/device/sample_rows.h"

namespace trainyard::cuda {

struct SampleRuns {
  SampleRows of;
  int64_t rows;     // Rows of the matrix.
  int64_t columns;  // Columns of the matrix.
  int64_t samples;
  int64_t runs;    // Runs of each sample. Runs behind the sample's rows in the matrix are empty.
  int64_t length;  // Rows of a run. The last run of a sample may have fewer.

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

// Cuts the rows of x into about `most` runs, with at least one run for each sample.
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

// Writes sum c of a sample. The columns of the tensors y, each [samples, columns], are numbered one
// tensor after another.
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

// Adds up the sums that the blocks wrote to `sums` [runs.all(), kTensors * columns], and writes the
// sums of each sample to y.
template <typename T, int kTensors>
void AddRunsOfSamples(Exec& exec, const Accumulate<T>* sums, const SampleRuns& runs,
                      const SampleOutputs<T, kTensors>& y) {
  constexpr int kWidth = 8;
  SumRuns(exec, sums, RowRuns{runs.all(), kTensors * runs.columns, runs.runs}, kWidth, y);
}

}  // namespace trainyard::cuda
