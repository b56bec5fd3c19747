// Writes fixed sinusoids of the place of each patch in the grid of an image's patches.
//
//   p      = part.position((first_row + t) % part.rows)
//   y[t,:] = sinusoids(p % columns), then sinusoids(p / columns): the grid's column, then its row
//   sinusoids(z)[i] = sin(z frequency[i]),  sinusoids(z)[D/4 + i] = cos(z frequency[i])
//   frequency[i]    = 10000^(-i / (D/4))        for i < D/4
//
// Source: He et al. 2021, arXiv:2111.06377, section 3 (the table of the released code).
// arXiv:2212.09748 uses the same table.
// Letters: T rows of this rank, D width. The sinusoids are computed in f64. The results are bitwise
// deterministic for any number of threads.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/sequence_part.h"

namespace trainyard {

struct GridPositionsArgs {
  Tensor y;         // [T, D]  out, f64 | f32 | bf16; D a multiple of 4
  int64_t columns;  // columns of the grid; > 0
  SequencePart part;
  int64_t first_row = 0;  // Number of row 0 of y among this context rank's rows of all samples.
};

inline void Check(const GridPositionsArgs& args) {
  const int64_t d = ExpectColumns("grid_positions y", args.y);
  ExpectFloat("grid_positions y", args.y);
  CHECK(d % 4 == 0) << "grid_positions y: width " << d << ", legal are multiples of 4";
  CHECK(args.columns > 0) << "grid_positions columns: " << args.columns;
  CHECK(args.part.valid()) << "grid_positions: rows " << args.part.rows << ", rank "
                           << args.part.rank << " of " << args.part.ranks;
  CHECK(args.first_row >= 0) << "grid_positions first_row: " << args.first_row;
}

}  // namespace trainyard
