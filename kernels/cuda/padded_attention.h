// Attention for kernels that want sequences of whole tiles: the rows are copied to where each
// sequence is followed by zeroes, and the results are copied back. The mask must be causal: no query
// sees a later key, and where dout is zero nothing is added to a gradient. So the results are as if
// the zeroes were not there.

#pragma once

#include "kernels/cuda/packed_attention.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

template <typename Args>
using Attempt = bool (*)(Exec&, const Args&);  // False: it refused, having done nothing.

// Calls `attention` with sequences of the next multiple of `tokens`, and returns what that does; or
// returns false at once where they would more than double, or where a sequence has more bytes than
// CUDA copies at once (2 GiB), where there is no memory for the copies, or where `attention`
// refused the shape before. The copies are kept with the stream from the first call for a shape on
// (CudnnKeptBytes). Throws DeviceError.
bool PadSequences(Exec& exec, const PackedAttentionForwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionForwardArgs> attention);
bool PadSequences(Exec& exec, const PackedAttentionBackwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionBackwardArgs> attention);

}  // namespace trainyard::cuda
