#include "controller/jobs/job_id.h"

#include <algorithm>

namespace trainyard::controller {
namespace {
constexpr absl::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr int kNumDigits = 10;
constexpr int64_t kOriginMilliseconds = 1'577'836'800'000;  // 2020-01-01
}  // namespace

uint64_t NextJobNumber(uint64_t last, absl::Time now) {
  const int64_t milliseconds = std::max<int64_t>(0, absl::ToUnixMillis(now) - kOriginMilliseconds);
  return std::max(last + 1, uint64_t(milliseconds) << 10);
}

std::string JobId(uint64_t number) {
  std::string id(2 + kNumDigits, 'j');
  id[1] = '-';
  for (int i = kNumDigits; i-- > 0; number >>= 5) id[2 + i] = kDigits[number & 31];
  return id;
}

std::optional<uint64_t> JobNumber(absl::string_view id) {
  if (id.size() != 2 + kNumDigits || id.substr(0, 2) != "j-") return std::nullopt;
  uint64_t number = 0;
  for (const char c : id.substr(2)) {
    const size_t digit = kDigits.find(c);
    if (digit == absl::string_view::npos) return std::nullopt;
    number = number << 5 | digit;
  }
  return number;
}

}  // namespace trainyard::controller
