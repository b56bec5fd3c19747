// The table of fields that each family has for its configuration. All code that reads, writes,
// compares, checks or lists a configuration uses this table. So a field is declared once: as a
// member with its default, and as a row in the family's Visit function.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/interval.h"
#include "common/violations.h"

namespace trainyard {

// The rule between a size and the number of tensor ranks.
enum class OverTensor {
  kWhole,       // No rule.
  kDivided,     // The ranks divide the size.
  kReplicated,  // The ranks divide the size, or are a multiple of it.
};

// When a model may differ in a field from the checkpoint that it loads. Each value includes the
// values below it. A tensor whose shape differs is always refused.
enum class MayDiffer {
  kNever,     // Never: parameters of the same shapes would mean something else.
  kInSubset,  // When a job starts from a subset of the checkpoint's parameters.
  kAtStart,   // When a job starts from the checkpoint's parameters (init_from).
  kAlways,    // Also when a job resumes.
};

// A row of the table, without the member that holds the value.
struct FieldRule {
  const char* name;            // As in a spec. A dot separates a group from a field: "moe.top_k".
  const char* help;            // For a person who fills in a spec.
  WholeNumbers whole = {};     // The legal values of an integer.
  Interval real = {};          // The legal values of a real number.
  const char* text = nullptr;  // The legal values of a text, for people.
  OverTensor over_tensor = OverTensor::kWhole;
  // The ranks divide the size after it was rounded up to a multiple of padded_to, the value of the
  // field `padded_by`. Null: the size is not rounded.
  const char* padded_by = nullptr;
  int64_t padded_to = 1;
  bool required = false;  // An architecture given inline must set the field.
  MayDiffer may_differ = MayDiffer::kNever;
  bool fixed = false;  // Only one value is legal. Files keep the field for older readers.
  // The configuration does not use the field, or its group; files omit the field.
  bool unset = false;
  // The field has the value that a file without the field means. Files leave the field out.
  bool implied = false;
};

// A field whose value is one of several names.
struct Choice {
  std::vector<std::string> names;
  size_t index = 0;
  std::function<void(size_t)> set;
};

// A pointer to the member that holds a field's value, or a Choice. A text has no rule of its own:
// the family's `check` judges it.
using FieldRef = std::variant<int64_t*, double*, bool*, std::string*, Choice>;
using FieldVisit = absl::FunctionRef<void(const FieldRule& rule, const FieldRef& field)>;

// A field's value, copied out of the configuration. A choice is a string, as a text is.
using FieldValue = std::variant<int64_t, double, bool, std::string>;
FieldValue ValueOf(const FieldRef& field);
// CHECKs that the value has the field's type. Ignores a string that is not a name of the choice:
// the code that read the string has already reported it.
void Assign(const FieldRef& field, const FieldValue& value);
std::string TextOf(const FieldValue& value);  // In the spelling of a spec.

// The fields that a user gave, by name.
using GivenFields = std::map<std::string, FieldValue>;

// Adds violations for fields below one path, and remembers which fields have a violation.
class FieldProblems {
 public:
  FieldProblems(Violations& violations, absl::string_view path)
      : violations_(violations), path_(path) {}

  void Add(absl::string_view field, const absl::AlphaNum& wanted, const absl::AlphaNum& found,
           const absl::AlphaNum& nearest = "");
  // Whether this object has added no violation for any of the fields.
  bool Legal(std::initializer_list<absl::string_view> fields) const;
  // Adds a violation if the value is not legal by the field's own rule.
  void Check(const FieldRule& rule, const FieldRef& field);

 private:
  Violations& violations_;
  std::string path_;
  std::vector<std::string> wrong_;
};

// The divisor of `value` that is closest to `wanted`. Of two equally close ones, the larger.
int64_t NearestDivisor(int64_t value, int64_t wanted);

}  // namespace trainyard
