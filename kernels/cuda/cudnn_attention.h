// Attention on cuDNN, where it has it: the fast path of attention.h for bf16.

#pragma once

#include "kernels/attention.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Each computes what attention.h says and returns true, or returns false having done nothing: for
// other dtypes and head dims, for sequences that would have to be more than doubled to be a
// multiple of 128 tokens (with others graphs of some versions read beyond the end;
// padded_attention.h), where cuDNN refuses, and in builds without it. Prepared by the first call
// for a shape, which allocates a workspace that is kept; backward's holds a square of bf16 for
// every head, which is the price of the same bits every time on Hopper. A refusal by cuDNN is
// logged with its reason. Throws DeviceError.
bool CudnnAttention(Exec& exec, const AttentionForwardArgs& args);
bool CudnnAttention(Exec& exec, const AttentionBackwardArgs& args);

}  // namespace trainyard::cuda
