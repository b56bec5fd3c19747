#include "common/violations.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/json.h"
#include "common/json_fields.h"

namespace trainyard {

void VisitFields(auto& v, FieldViolation& violation) {
  v("field", violation.field), v("wanted", violation.wanted), v("found", violation.found);
  v("nearest", violation.nearest), v("note", violation.note);
}

namespace {

using Json = nlohmann::json;

constexpr char kPayload[] = "trainyard/violations";

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

// As people write it, and with all digits where six would be another number.
std::string TextOf(double value) {
  const std::string text = absl::StrCat(value);
  double read = 0;
  if (absl::SimpleAtod(text, &read) && read == value) return text;
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), value).ptr};
}

}  // namespace

std::string FieldViolation::Description() const {
  std::vector<std::string> parts;
  if (!wanted.empty()) {
    parts.push_back(absl::StrCat("wanted ", wanted, found.empty() ? "" : ", found ", found));
  }
  if (!nearest.empty()) parts.push_back(absl::StrCat("nearest ", nearest));
  if (!note.empty()) parts.push_back(note);
  return absl::StrJoin(parts, "; ");
}

std::string FieldViolation::ToString() const { return absl::StrCat(field, ": ", Description()); }

void Violations::Add(absl::string_view field, const absl::AlphaNum& wanted,
                     const absl::AlphaNum& found, const absl::AlphaNum& nearest) {
  Add({std::string(field), absl::StrCat(wanted), absl::StrCat(found), absl::StrCat(nearest)});
}

bool Violations::Check(absl::string_view field, int64_t value, const WholeNumbers& legal) {
  if (legal.Holds(value)) return true;
  return Add(field, legal.Words(), value, legal.Nearest(value)), false;
}

bool Violations::Check(absl::string_view field, double value, const Interval& legal) {
  if (legal.Holds(value)) return true;
  return Add(field, legal.Words(), TextOf(value), legal.Nearest(value)), false;
}

void Violations::AddAll(const Violations& others) {
  list_.insert(list_.end(), others.list_.begin(), others.list_.end());
}

absl::Status Violations::ToStatus() const {
  if (list_.empty()) return absl::OkStatus();
  absl::Status status = absl::InvalidArgumentError(
      absl::StrJoin(list_, "\n", [](std::string* out, const FieldViolation& violation) {
        out->append(violation.ToString());
      }));
  Json json;
  WriteFields(json, list_);
  status.SetPayload(kPayload, absl::Cord(JsonText(json)));
  return status;
}

std::vector<FieldViolation> Violations::FromStatus(const absl::Status& status) {
  std::vector<FieldViolation> list;
  if (const auto payload = status.GetPayload(kPayload)) {
    const absl::Status read = ReadFields(ParseJson<Json>(std::string(*payload)), list);
    CHECK(read.ok()) << read;
  }
  return list;
}

absl::Status WrongField(absl::string_view field, const absl::AlphaNum& wanted,
                        const absl::AlphaNum& found, const absl::AlphaNum& nearest) {
  Violations violations;
  violations.Add(field, wanted, found, nearest);
  return violations.ToStatus();
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
