#include "cli/spec_scalar.h"

#include <cmath>

#include "absl/strings/numbers.h"

namespace trainyard::cli {
namespace {

// "1e3" as 1000. Up to 2^53 alone: beyond it a double does not hold every whole number, so that
// 1e20 would not say which one is meant.
std::optional<int64_t> ReadExponent(absl::string_view text) {
  double real = 0;
  if (!absl::SimpleAtod(text, &real) || !(std::fabs(real) <= 0x1p53) || real != std::floor(real)) {
    return std::nullopt;
  }
  return int64_t(real);
}

}  // namespace

std::optional<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    const std::optional<int64_t> exponent = ReadExponent(text);
    if (!exponent || *exponent < 0) return std::nullopt;
    value = uint64_t(*exponent);
  }
  if (value > max) return std::nullopt;
  return value;
}

std::optional<int32_t> ReadInt32(absl::string_view text) {
  int32_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  const std::optional<int64_t> exponent = ReadExponent(text);
  if (!exponent || *exponent < INT32_MIN || *exponent > INT32_MAX) return std::nullopt;
  return int32_t(*exponent);
}

std::optional<bool> ReadBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

}  // namespace trainyard::cli
