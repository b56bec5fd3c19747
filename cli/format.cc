#include "cli/format.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainyard::cli {

std::string FormatCount(double count) {
  const char* const kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  while (std::fabs(count) >= 999.5 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  if (unit == 0) return absl::StrFormat("%.0f", count);
  return absl::StrFormat("%.3g%s", count, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 9.95) return absl::StrFormat("%.1fs", seconds);
  const int64_t whole = int64_t(std::llround(std::min(seconds, 1e12)));
  if (whole < 60) return absl::StrFormat("%ds", whole);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%dd%02dh", whole / 86400, whole / 3600 % 24);
}

std::string FormatPercent(double ratio) { return absl::StrFormat("%.1f%%", 100 * ratio); }

std::string FormatNumber(double value, int digits) {
  return absl::StrFormat("%.*g", digits, value);
}

absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

std::string FormatTimestamp(const google::protobuf::Timestamp& timestamp) {
  if (timestamp.seconds() == 0 && timestamp.nanos() == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", ToTime(timestamp), absl::UTCTimeZone());
}

std::string RoleName(v1::Role role) { return absl::AsciiStrToLower(ShortName(role, "ROLE_")); }

}  // namespace trainyard::cli
