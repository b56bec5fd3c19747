// The table of fields that each family has for its configuration. Whatever reads, writes, compares,
// checks or lists a configuration goes through that table, so that a field is declared once: as a
// member with its default, and as a row of the family's Visit function.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/violations.h"

namespace trainyard {

// What a size asks of the number of tensor ranks.
enum class OverTensor {
  kWhole,       // Nothing.
  kDivided,     // The ranks divide the size.
  kReplicated,  // The ranks divide the size, or are a multiple of it.
};

// Where a model may differ in a field from the checkpoint that it loads. Each includes those below.
// A tensor whose shape differs is refused in any case.
enum class MayDiffer {
  kNever,     // Parameters of the same shapes would mean something else.
  kInSubset,  // Where a job starts from what the checkpoint has of its parameters.
  kAtStart,   // Where a job starts from the checkpoint's parameters (init_from).
  kAlways,    // Where a job resumes.
};

// A row of the table, without the member that holds the value.
struct FieldRule {
  const char* name;  // As in a spec. A dot separates a group from its fields: "moe.top_k".
  const char* help;  // For a person who fills in a spec.
  // The legal values of an integer. The smallest and the largest are multiples, too.
  int64_t least = 1;
  int64_t most = 0;
  int64_t multiple = 1;
  bool (*legal)(double) = nullptr;  // Of a number.
  // The legal values as messages say them. Null: "least to most".
  const char* wanted = nullptr;
  OverTensor over_tensor = OverTensor::kWhole;
  bool required = false;  // An architecture given inline has to say the field.
  MayDiffer may_differ = MayDiffer::kNever;
  bool fixed = false;  // One value is legal. Files keep the field for older readers.
  bool unset = false;  // Not used by this configuration, like its group; files leave it out.
};

// An enumeration by the names of its values.
struct Choice {
  std::vector<std::string> names;
  size_t index = 0;
  std::function<void(size_t)> set;
};

// Where a configuration holds the value of a field.
using FieldRef = std::variant<int64_t*, double*, bool*, Choice>;
using FieldVisit = absl::FunctionRef<void(const FieldRule& rule, const FieldRef& field)>;

// The value of a field by itself. A choice is text.
using FieldValue = std::variant<int64_t, double, bool, std::string>;
FieldValue ValueOf(const FieldRef& field);
// CHECKs that the value is of the field's type. Text that is none of a choice's names is ignored,
// for the reader of that text has reported it.
void Assign(const FieldRef& field, const FieldValue& value);
std::string TextOf(const FieldValue& value);  // As a spec spells it.

// Fields that a user gave, by name.
using GivenFields = std::map<std::string, FieldValue>;

// Adds violations of fields below one path, and remembers which fields have one.
class FieldProblems {
 public:
  FieldProblems(Violations& violations, absl::string_view path)
      : violations_(violations), path_(path) {}

  void Add(absl::string_view field, absl::string_view description);
  // Whether no violation of any of the fields was added here.
  bool Legal(std::initializer_list<absl::string_view> fields) const;
  // Adds a violation where the value is not legal by its own rule.
  void Check(const FieldRule& rule, const FieldRef& field);

 private:
  Violations& violations_;
  std::string path_;
  std::vector<std::string> wrong_;
};

// The divisor of `value` closest to `wanted`, the larger one of two equally close.
int64_t NearestDivisor(int64_t value, int64_t wanted);

}  // namespace trainyard
