#include "common/interval.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace trainyard {

bool IsWithin(absl::string_view interval, double value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(interval, ' ');
  double least = 0, most = 0;
  const auto compares = [](absl::string_view sign) { return sign == "<" || sign == "<="; };
  CHECK(parts.size() == 5 && absl::SimpleAtod(parts[0], &least) && compares(parts[1]) &&
        parts[2] == "x" && compares(parts[3]) && absl::SimpleAtod(parts[4], &most))
      << "no interval: " << interval;
  const bool above = parts[1] == "<" ? least < value : least <= value;
  const bool below = parts[3] == "<" ? value < most : value <= most;
  return above && below;
}

std::string NearestBound(absl::string_view interval, double value) {
  const size_t x = interval.find(" x ");
  // Of several intervals, the nearest bound may be one of another.
  if (x == interval.npos || interval.substr(0, x).find(',') != interval.npos) return "";
  const absl::string_view before = interval.substr(0, x), after = interval.substr(x + 3);
  const absl::string_view least = before.substr(0, before.find(' '));
  double bound = 0;
  if (absl::EndsWith(before, "<=") && absl::SimpleAtod(least, &bound) && value < bound) {
    return std::string(least);
  }
  if (!absl::StartsWith(after, "<= ")) return "";
  const absl::string_view most = after.substr(3, after.find_first_of(" ,", 3) - 3);
  return absl::SimpleAtod(most, &bound) && value > bound ? std::string(most) : "";
}

}  // namespace trainyard
