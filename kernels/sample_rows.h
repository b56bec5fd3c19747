// Which rows of a matrix belong to which sample: the rows of samples follow one another, and a rank
// may begin and end in the middle of a sample (tensor ranks share out a micro-batch's rows).

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct SampleRows {
  int64_t first = 0;       // Number of this matrix's row 0 among the rows of all samples.
  int64_t per_sample = 1;  // Rows of one sample.

  constexpr int64_t sample_of(int64_t row) const { return (first + row) / per_sample; }
  // Of `rows` rows, those of a sample are [begin_of(s), begin_of(s + 1)); that may be none.
  constexpr int64_t begin_of(int64_t sample, int64_t rows) const {
    const int64_t begin = sample * per_sample - first;
    return begin < 0 ? 0 : begin > rows ? rows : begin;
  }
  // Whether each of `rows` rows belongs to one of so many samples.
  constexpr bool fit(int64_t rows, int64_t samples) const {
    return first >= 0 && per_sample > 0 && first + rows <= samples * per_sample;
  }
};

// A matrix with a row for each sample, for the rows of x.
inline void ExpectSamples(const char* name, const ConstTensor& x, const ConstTensor& of_samples,
                          const SampleRows& rows) {
  const int64_t samples = of_samples.shape.rank() > 0 ? of_samples.shape.rows() : 0;
  ExpectMatrix(name, of_samples, x.dtype, samples, x.shape.back());
  CHECK(rows.fit(x.shape.rows(), samples))
      << name << ": " << samples << " samples of " << rows.per_sample << " rows, for rows "
      << rows.first << " to " << rows.first + x.shape.rows();
}

}  // namespace trainyard
