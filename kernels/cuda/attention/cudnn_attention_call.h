// What cudnn_attention.cc asks of cuDNN: one plan, executed on the tensors of one call. The adapter
// asks the library. tests/testing/cudnn_emulation computes what the plan's graph says.

#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// The ids of a call's tensors in graphs.
enum AttentionTensor : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// Where the first elements of a call's tensors are, in device memory, by AttentionTensor.
using AttentionPointers = std::unordered_map<int64_t, void*>;

// Enqueues the plan on the stream of `exec`, and returns true. Returns false without doing anything
// if cuDNN has no plan for the shape. The pointers must be multiples of 16 bytes. Throws
// DeviceError.
bool ExecutePlan(Exec& exec, const CudnnAttentionPlan& wanted, const AttentionPointers& pointers);

// Logs that our kernels compute what is wanted. Call this once for each shape.
void LogRefused(const CudnnAttentionPlan& wanted, const std::string& reason);

}  // namespace trainyard::cuda
