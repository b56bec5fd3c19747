#include "common/interval.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace trainyard {
namespace {

// As people write it: "1e6" and not "1e+06".
std::string Text(double x) {
  return absl::StrReplaceAll(absl::StrCat(x), {{"e+0", "e"}, {"e+", "e"}, {"e-0", "e-"}});
}

std::string Bracketed(const char* text) {
  return text == nullptr ? "" : absl::StrCat(" (", text, ")");
}

}  // namespace

bool Interval::Holds(double x) const {
  return (x >= least && x > above && x <= most && x < below) || (zero != nullptr && x == 0);
}

std::string Interval::Words() const {
  const double from = std::max(least, above), to = std::min(most, below);
  std::string words;
  if (zero != nullptr && from > 0) words = absl::StrCat("0", Bracketed(zero), ", or ");
  if (from > -kNoEnd) {
    absl::StrAppend(&words, Text(from), from == 0 ? Bracketed(zero) : "");
  }
  if (from < to) {
    if (from > -kNoEnd) absl::StrAppend(&words, from == above ? " < " : " <= ");
    absl::StrAppend(&words, "x");
    if (to < kNoEnd) absl::StrAppend(&words, to == below ? " < " : " <= ", Text(to));
  }
  return words + Bracketed(note);
}

std::string Interval::Nearest(double x) const {
  const double end = x < least || x <= above ? least : std::min(most, below - 0.01);
  if (zero != nullptr && std::abs(x) < std::abs(x - end)) return "0";
  return std::isfinite(end) && Holds(end) && !std::isnan(x) ? Text(end) : "";
}

std::string WholeNumbers::Words() const {
  const std::string from_to = absl::StrCat(least, " to ", most);
  const std::string words = least == most   ? absl::StrCat(least)
                            : multiple == 1 ? from_to
                            : multiple == 2
                                ? absl::StrCat("an even number from ", from_to)
                                : absl::StrCat("a multiple of ", multiple, " from ", from_to);
  return words + Bracketed(note);
}

int64_t WholeNumbers::Nearest(int64_t x) const {
  return std::clamp(x / multiple * multiple, least, most);
}

}  // namespace trainyard
