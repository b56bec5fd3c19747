#include "common/violations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trainyard {
namespace {

constexpr char kPayload[] = "trainyard/violations";
constexpr char kNearest[] = "; nearest ";

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

void Violations::Add(absl::string_view field, absl::string_view description) {
  violations_.push_back({std::string(field), std::string(description)});
}

absl::Status Violations::ToStatus() const {
  if (violations_.empty()) return absl::OkStatus();
  absl::Status status = absl::InvalidArgumentError(
      absl::StrJoin(violations_, "\n", [](std::string* out, const FieldViolation& v) {
        absl::StrAppend(out, v.field, ": ", v.description);
      }));
  // The unit and record separators do not occur in a field's path, nor in our descriptions.
  status.SetPayload(
      kPayload,
      absl::Cord(absl::StrJoin(violations_, "\x1e", [](std::string* out, const FieldViolation& v) {
        absl::StrAppend(out, v.field, "\x1f", v.description);
      })));
  return status;
}

std::vector<FieldViolation> Violations::FromStatus(const absl::Status& status) {
  std::vector<FieldViolation> list;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return list;
  for (absl::string_view record : absl::StrSplit(std::string(*payload), '\x1e')) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(record, absl::MaxSplits('\x1f', 1));
    list.push_back({parts.first, parts.second});
  }
  return list;
}

std::string Wanted(absl::string_view wanted, const absl::AlphaNum& found,
                   const absl::AlphaNum& nearest) {
  const std::string description = absl::StrCat("wanted ", wanted, ", found ", found);
  return nearest.size() == 0 ? description : WithNearest(description, nearest);
}

std::string WithNearest(absl::string_view description, const absl::AlphaNum& nearest) {
  return absl::StrCat(description.substr(0, description.rfind(kNearest)), kNearest, nearest);
}

int64_t NearestMultiple(int64_t value, int64_t unit, int64_t most) {
  const int64_t multiples = std::max<int64_t>(1, most / unit);
  const int64_t below = std::clamp<int64_t>(value / unit, 0, multiples);
  const bool up = value - below * unit >= unit - unit / 2;
  return std::clamp<int64_t>(below + (up ? 1 : 0), 1, multiples) * unit;
}

std::string NearestName(absl::string_view found, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, found.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(found, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace trainyard
