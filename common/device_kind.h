// The kinds of devices on which ranks run.

#pragma once

#include <cstdint>

namespace trainyard {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// As configs write it.
inline const char* Name(DeviceKind kind) { return kind == DeviceKind::kCpu ? "CPU" : "CUDA"; }

}  // namespace trainyard
