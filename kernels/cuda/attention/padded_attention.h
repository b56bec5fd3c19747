// Attention for kernels that want sequences of whole tiles: the rows are copied to where each
// sequence is followed by zeroes, and the results are copied back. The mask must be causal: no
// query sees a later key, and where dout is zero nothing is added to a gradient. So the results are
// as if the zeroes were not there.

#pragma once

#include "kernels/cuda/attention/packed_attention.h"
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
