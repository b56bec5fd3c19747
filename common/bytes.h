// Formats counts of bytes for people.

#pragma once

#include <string>

namespace trainyard {

std::string FormatBytes(double bytes);  // 950 B, 12.3 KiB, 7.81 GiB

}  // namespace trainyard
