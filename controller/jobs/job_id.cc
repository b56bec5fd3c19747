#include "controller/jobs/job_id.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace trainyard::controller {
namespace {
constexpr absl::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr size_t kFewestDigits = 10;
constexpr size_t kMostDigits = 13;                             // Of 64 bits.
constexpr int64_t kOriginMilliseconds = 1'577'836'800'000;     // 2020-01-01
constexpr int64_t kMostMilliseconds = (int64_t{1} << 45) - 1;  // After that; in the year 3134.
}  // namespace

uint64_t NextJobNumber(uint64_t last, absl::Time now) {
  const int64_t milliseconds = std::clamp<int64_t>(absl::ToUnixMillis(now), kOriginMilliseconds,
                                                   kOriginMilliseconds + kMostMilliseconds) -
                               kOriginMilliseconds;
  return std::max(last + 1, uint64_t(milliseconds) << 10);
}

std::string JobId(uint64_t number) {
  std::string digits;
  for (; number > 0 || digits.size() < kFewestDigits; number >>= 5) digits += kDigits[number & 31];
  return absl::StrCat("j-", std::string(digits.rbegin(), digits.rend()));
}

std::optional<uint64_t> JobNumber(absl::string_view id) {
  if (!absl::ConsumePrefix(&id, "j-")) return std::nullopt;
  // Of the digits beyond the tenth, none is zero for nothing: a job has one id.
  const bool longer = id.size() > kFewestDigits;
  if (id.size() < kFewestDigits || id.size() > kMostDigits) return std::nullopt;
  if (longer && (id[0] == kDigits[0] || (id.size() == kMostDigits && id[0] > 'f'))) {
    return std::nullopt;
  }
  uint64_t number = 0;
  for (const char c : id) {
    const size_t digit = kDigits.find(c);
    if (digit == absl::string_view::npos) return std::nullopt;
    number = number << 5 | digit;
  }
  return number;
}

}  // namespace trainyard::controller
