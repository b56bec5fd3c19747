// Reads the fields of one mapping into typed variables and collects everything that is wrong.
// Asking for a field is what makes it known: whatever was not asked for when the reader goes out of
// scope is reported as unknown. FieldWriter (resolved_job.cc) has the same functions and writes.

#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard {

// The legal values of an integer's wire type.
struct IntegerRange {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};
inline constexpr IntegerRange kUint32{0, std::numeric_limits<uint32_t>::max()};
inline constexpr IntegerRange kInt64{};  // Not negative.

// What it means that a field is not there.
enum class Absent {
  kDefault,  // It has its default, as in what a person writes.
  kWrong,    // It was lost: a job that the controller has resolved has every field.
};

class Fields {
 public:
  // Both outlive the reader. `path` is "" for the document itself. A node that is not a mapping is
  // a violation and counts as empty.
  Fields(const YamlNode& node, std::string path, Violations& violations,
         Absent absent = Absent::kDefault);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  // The document is no job spec: an unknown field is not looked up among other frameworks' names.
  void NotOfASpec() { of_spec_ = false; }

  bool resolved() const { return absent_ == Absent::kWrong; }

  // Each leaves `out` as it is where the field is absent, null or wrong. Of a list of numbers a
  // wrong item is 0.
  void Field(const char* name, std::string& out);
  void Field(const char* name, bool& out);
  void Field(const char* name, double& out);
  void Field(const char* name, uint64_t& out);
  void Field(const char* name, int64_t& out);  // Any: what is legal, Validate says.
  void Field(const char* name, IntegerRange range, int64_t& out);
  void Field(const char* name, std::vector<std::string>& out);
  void Field(const char* name, std::vector<int64_t>& out);
  void Field(const char* name, std::map<std::string, std::string>& out);
  void Field(const char* name, std::map<std::string, double>& out);

  // Null is a value here.
  template <typename T>
  void Field(const char* name, std::optional<T>& out) {
    if (!PresentOrNull(name)) return;
    T value{};
    Field(name, value);
    out = value;
  }
  // For where the wire says "0 means the default". A resolved job has the default itself.
  void FieldUnlessZero(const char* name, int64_t& out);

  // `values` are written with or without `prefix`; PREFIX_UNSPECIFIED leaves `out` as it is.
  template <typename Enum>
  void EnumField(const char* name, absl::string_view prefix,
                 const std::vector<std::pair<std::string, Enum>>& values, Enum& out) {
    std::vector<std::string> names;
    for (const auto& [text, value] : values) names.push_back(text);
    const int index = EnumIndex(name, prefix, names);
    if (index >= 0) out = values[size_t(index)].second;
  }

  // Calls read(Fields&) on the mapping under `name`, if there is one. Returns whether the field is
  // present.
  template <typename Read>
  bool Section(const char* name, Read&& read) {
    const YamlNode* node = Ask(name);
    if (node == nullptr) return false;
    Fields section(*node, PathOf(name), violations_, absent_);
    read(section);
    return true;
  }
  // Calls read(Fields&, T&), too, if there is such a mapping. Null is a value here: none.
  template <typename T, typename Read>
  void OptionalSection(const char* name, std::optional<T>& out, Read&& read) {
    if (!PresentOrNull(name)) return;
    Section(name, [&](Fields& section) { read(section, out.emplace()); });
  }

  // A mapping within a section whose entries count as if they stood beside it.
  struct Inlined {
    const char* name;
    size_t most;             // Entries.
    size_t most_name_bytes;  // Of an entry's name.
  };
  // The same for a section with such a mapping. Violations are too many entries, too long a name,
  // a name that stands in both places, and what is no single value.
  template <typename Read>
  bool Section(const char* name, const Inlined& inlined, Read&& read) {
    const YamlNode* node = Ask(name);
    if (node == nullptr) return false;
    const YamlNode merged = Merged(name, *node, inlined);
    Fields section(merged, PathOf(name), violations_, absent_);
    read(section);
    return true;
  }

  // Of `names`, the one that is present; empty if none is. Two are a violation, and then the first
  // counts. `held` is for writers.
  std::string OneOf(const std::vector<std::string>& names, absl::string_view held);
  // The mapping under one of these names, be it the one that counts or not.
  template <typename Read>
  void Alternative(const char* name, absl::string_view /*chosen*/, Read&& read) {
    if (Present(name)) Section(name, std::forward<Read>(read));
  }

  // Whether the field stands there, null or not. Does not make it known.
  bool Stands(const char* name) const { return node_.Find(name) != nullptr; }
  // The field as it was written, for what has a form of its own; null where absent or null.
  const YamlNode* Node(const char* name) { return Ask(name); }

  void Add(absl::string_view name, absl::string_view description) {
    violations_.Add(PathOf(name), description);
  }

  bool Present(const char* name);  // And not null.
  // The same of a field that may be null. That it is absent is wrong of a resolved job.
  bool PresentOrNull(const char* name);
  void KnowAll();  // Nothing is unknown here.
  std::string PathOf(absl::string_view name) const;
  void Wrong(absl::string_view name, absl::string_view wanted, const YamlNode& found,
             const absl::AlphaNum& nearest = "");

 private:
  void Know(const char* name);
  const YamlNode* Ask(const char* name);  // Null where absent or null.
  const YamlNode* Scalar(const char* name, absl::string_view wanted);
  YamlNode Merged(const char* name, const YamlNode& node, const Inlined& inlined);
  int EnumIndex(const char* name, absl::string_view prefix, const std::vector<std::string>& names);

  const YamlNode& node_;
  const std::string path_;
  Violations& violations_;
  const Absent absent_;
  bool of_spec_ = true;
  std::vector<std::string> known_;
};

// The smallest number above 0 that a spec may hold. Smaller ones are subnormal in f32, in which the
// ranks compute: digits are lost there, and some devices take such a number for 0.
inline constexpr double kSmallestNumber = 1.2e-38;

// The number that a floating field of a spec holds: a finite decimal, and either 0 without a sign
// or at least kSmallestNumber in size. Nothing where the text is no such number.
std::optional<double> ReadNumber(absl::string_view text);

// As in messages: what was written, cut and escaped.
std::string Quoted(absl::string_view text);

// Adds what `found` says, below `prefix`, about fields that no violation names yet, nor one that
// they are part of. A field that could not be read has its default, so that a problem with the
// default is not reported.
void AddUnreported(const Violations& found, absl::string_view prefix, Violations& violations);

}  // namespace trainyard
