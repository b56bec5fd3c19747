// The positions of tokens in their sequences: y[i] = part.position((first_row + i) % part.rows).
// With document_begins, those in their documents: y[i] less document_begins[first_row + i].

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/sequence_part.h"

namespace trainyard {

struct PositionsArgs {
  Tensor y;  // any shape, i32, out
  SequencePart part;
  int64_t first_row = 0;             // Number of y's first row on this rank, over all sequences.
  ConstTensor document_begins = {};  // [rows of the rank]  i32, as in attention.h
};

inline void Check(const PositionsArgs& args) {
  ExpectElements("positions y", args.y, DType::kI32, args.y.elements());
  CHECK(args.part.valid()) << "positions: rows " << args.part.rows << ", rank " << args.part.rank
                           << " of " << args.part.ranks;
  CHECK(args.first_row >= 0) << "positions first_row: " << args.first_row;
  if (args.document_begins.data == nullptr) return;
  CHECK(args.document_begins.dtype == DType::kI32 &&
        args.document_begins.elements() >= args.first_row + args.y.elements())
      << "positions document_begins: " << args.document_begins.elements() << " elements, first_row "
      << args.first_row;
}

}  // namespace trainyard
