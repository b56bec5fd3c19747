// Facts about GPU models by their name: dense peaks, and the size and bandwidth of the memory. A
// worker reports the peaks of its devices, and MFU is computed from them.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

struct GpuModel {
  const char* name;   // As NVML and cudaDeviceProp spell it.
  double bf16_flops;  // Per second: dense, tensor cores, sums in f32.
  double fp8_flops;   // The same.
  double f32_flops;   // Without tensor cores, which would round f32 inputs.
  double memory_bytes_per_second;
  uint64_t memory_bytes;  // By the data sheet; a program gets a few per cent less.

  // By dtype: bf16, f32, fp8.
  std::map<std::string, double> peak_flops() const;
};

// Finds a model by its whole name, because variants of one model differ by a third. Null: the model
// is unknown; then its peak is unknown, and its jobs have no MFU.
const GpuModel* FindGpuModel(absl::string_view name);

}  // namespace trainyard
