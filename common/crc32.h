// CRC-32 with zlib's polynomial. It is faster than zlib's own on processors that can multiply
// without carry (PCLMULQDQ). Each transaction's slot of the store's witness has such a checksum.
// (With zlib's version it took two fifths of the writing thread's instructions: callgrind on
// submit_bench, 200 submits.) Each piece of a checkpoint's box has one, too.

#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

// Has the interface of zlib's crc32_z: `crc` is the checksum of the preceding bytes, or 0 at the
// start.
uint32_t Crc32(uint32_t crc, const void* data, size_t bytes);

}  // namespace trainyard
