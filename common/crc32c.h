// CRC-32C, the checksum with Castagnoli's polynomial (RFC 3720, appendix B.4). TensorBoard's record
// files have one for each length and one for each record.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainyard {

uint32_t Crc32c(absl::string_view bytes);

}  // namespace trainyard
