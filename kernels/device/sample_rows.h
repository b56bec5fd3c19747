// Says which rows of a matrix belong to which sample. The rows of the samples follow one another.
// The matrix may begin and end in the middle of a sample, because the tensor ranks divide the rows
// of a micro-batch.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct SampleRows {
  int64_t first = 0;       // Number of this matrix's row 0 among the rows of all samples.
  int64_t per_sample = 1;  // Rows of one sample.

  constexpr int64_t sample_of(int64_t row) const { return (first + row) / per_sample; }
  // Sample s has the rows [begin_of(s, rows), begin_of(s + 1, rows)) of a matrix of `rows` rows.
  // The range may be empty.
  constexpr int64_t begin_of(int64_t sample, int64_t rows) const {
    const int64_t begin = sample * per_sample - first;
    return begin < 0 ? 0 : begin > rows ? rows : begin;
  }
  // Returns whether each of `rows` rows belongs to one of `samples` samples.
  constexpr bool fit(int64_t rows, int64_t samples) const {
    return first >= 0 && per_sample > 0 && first + rows <= samples * per_sample;
  }
};

// CHECKs that `of_samples` has the dtype and the width of x, and one row for each sample to which a
// row of x belongs.
inline void ExpectSamples(const char* name, const ConstTensor& x, const ConstTensor& of_samples,
                          const SampleRows& rows) {
  const int64_t samples = of_samples.shape.rank() > 0 ? of_samples.shape.rows() : 0;
  ExpectMatrix(name, of_samples, x.dtype, samples, x.shape.back());
  CHECK(rows.fit(x.shape.rows(), samples))
      << name << ": " << samples << " samples of " << rows.per_sample << " rows, for rows "
      << rows.first << " to " << rows.first + x.shape.rows();
}

}  // namespace trainyard
