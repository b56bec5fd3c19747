// What is known of GPU models by their name: dense peaks, and the memory's size and bandwidth. A
// worker labels its devices with the peaks, which is where MFU gets them.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

struct GpuModel {
  const char* name;   // As NVML and cudaDeviceProp have it.
  double bf16_flops;  // Dense, tensor cores, sums in f32; per second, as are all.
  double fp8_flops;   // The same.
  double f32_flops;   // Without tensor cores, which would round f32 to fewer bits.
  double memory_bytes_per_second;
  uint64_t memory_bytes;  // Of the data sheet; a program gets a few per cent less.

  // By dtype, as devices carry them: bf16, f32, fp8.
  std::map<std::string, double> peak_flops() const;
};

// By the whole name, since variants of one model differ by a third; null for one that is not known,
// which then has no peak, and its jobs no MFU.
const GpuModel* FindGpuModel(absl::string_view name);

}  // namespace trainyard
