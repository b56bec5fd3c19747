#include "common/crc32c.h"

#include <array>

namespace trainyard {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's polynomial with reversed bits.

// The checksum of each byte alone.
constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ uint8_t(byte)) & 0xff];
  return ~crc;
}

}  // namespace trainyard
