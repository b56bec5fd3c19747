// Numbers of 16 bits in IEEE 754's binary16 (f16), which files of others have. No op computes in
// this format.

#pragma once

#include <cstdint>

namespace trainyard {

float HalfToFloat(uint16_t half);  // Exact.
// Rounds to nearest even. Numbers beyond 65504 become infinite.
uint16_t FloatToHalf(float value);

}  // namespace trainyard
