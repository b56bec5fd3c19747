#include "common/bytes.h"

#include <iterator>

#include "absl/strings/str_format.h"

namespace trainyard {

std::string FormatBytes(double bytes) {
  const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1023.5 && unit + 1 < std::size(kUnits)) bytes /= 1024, ++unit;
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  return absl::StrFormat("%.*f %s", bytes < 9.95 ? 2 : 1, bytes, kUnits[unit]);
}

}  // namespace trainyard
