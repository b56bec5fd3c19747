// CRC-32 with zlib's polynomial, where the processor multiplies without carry (PCLMULQDQ) faster
// than zlib's own. Each transaction's slot of the store's witness has such a checksum (with zlib's,
// it took two fifths of the writing thread's instructions: callgrind on submit_bench, 200 submits),
// and so has each piece of a checkpoint's box.

#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

// As zlib's crc32_z: `crc` is that of the bytes before, 0 where there are none.
uint32_t Crc32(uint32_t crc, const void* data, size_t bytes);

}  // namespace trainyard
