// What one connection may ask of the controller's gRPC server at once.

#pragma once

#include <cstdint>

namespace trainyard::controller {

inline constexpr int kMaxReceiveBytes = 1 << 20;
inline constexpr int kMaxMetadataBytes = 8 << 10;
inline constexpr int kMaxCallsPerConnection = 100;

}  // namespace trainyard::controller
