// Counts of bytes as people read them.

#pragma once

#include <string>

namespace trainyard {

std::string FormatBytes(double bytes);  // 950 B, 12.3 KiB, 7.81 GiB

}  // namespace trainyard
