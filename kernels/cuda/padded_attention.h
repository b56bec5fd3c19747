// Attention for kernels that need sequences of whole tiles. The rows are copied to a place where
// zeroes follow each sequence, and the results are copied back. The zeroes do not change the
// results: no query sees a later key, and where dout is zero nothing is added to a gradient.

#pragma once

#include "kernels/cuda/packed_attention.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

template <typename Args>
using Attempt = bool (*)(Exec&, const Args&);  // False: refused, and did nothing.

// Calls `attention` with sequences of the next multiple of `tokens`, and returns its result.
// Returns false at once in any of these cases:
// - Sequences would more than double.
// - A sequence has more bytes than CUDA copies at once (2 GiB).
// - There is no memory for the copies.
// - `attention` refused the shape before.
// The first call for a shape allocates the copies, which are kept with the stream (CudnnKeptBytes).
// Throws DeviceError.
bool PadSequences(Exec& exec, const PackedAttentionForwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionForwardArgs> attention);
bool PadSequences(Exec& exec, const PackedAttentionBackwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionBackwardArgs> attention);

}  // namespace trainyard::cuda
