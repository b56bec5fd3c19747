// Reads the fields of one mapping into typed variables and collects everything that is wrong.
// Asking for a field is what makes it known: whatever was not asked for when the reader goes out of
// scope is reported as unknown.

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

class Fields {
 public:
  // Both outlive the reader. `path` is "" for the document itself. A node that is not a mapping is
  // a violation and counts as empty.
  Fields(const YamlNode& node, std::string path, Violations& violations);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  // Each leaves `out` as it is where the field is absent, null or wrong. Of a list of numbers a
  // wrong item is 0.
  void Read(const char* name, std::string& out);
  void Read(const char* name, bool& out);
  void Read(const char* name, double& out);
  void Read(const char* name, uint64_t& out);
  void Read(const char* name, int64_t& out);  // Any: what is legal, Validate says.
  void Read(const char* name, IntegerRange range, int64_t& out);
  void Read(const char* name, std::vector<std::string>& out);
  void Read(const char* name, std::vector<int64_t>& out);
  void Read(const char* name, std::map<std::string, std::string>& out);
  void Read(const char* name, std::map<std::string, double>& out);

  template <typename T>
  void Read(const char* name, std::optional<T>& out) {
    T value{};
    Read(name, value);
    if (Present(name)) out = value;
  }

  // `values` are written with or without `prefix`; PREFIX_UNSPECIFIED leaves `out` as it is.
  template <typename Enum>
  void ReadEnum(const char* name, absl::string_view prefix,
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
    Fields section(*node, PathOf(name), violations_);
    read(section);
    return true;
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
    Fields section(merged, PathOf(name), violations_);
    read(section);
    return true;
  }

  // Of `names`, the one that is present; empty if none is. Two are a violation, and then the first
  // counts.
  std::string OneOf(const std::vector<std::string>& names);

  void Add(absl::string_view name, absl::string_view description) {
    violations_.Add(PathOf(name), description);
  }

  bool Present(const char* name) { return Ask(name) != nullptr; }
  std::string PathOf(absl::string_view name) const;
  void Wrong(absl::string_view name, absl::string_view wanted, const YamlNode& found,
             const absl::AlphaNum& nearest = "");

 private:
  const YamlNode* Ask(const char* name);  // Null where absent or null.
  const YamlNode* Scalar(const char* name, absl::string_view wanted);
  YamlNode Merged(const char* name, const YamlNode& node, const Inlined& inlined);
  int EnumIndex(const char* name, absl::string_view prefix, const std::vector<std::string>& names);

  const YamlNode& node_;
  const std::string path_;
  Violations& violations_;
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
// they are part of: what could not be read has its default, and what is wrong with that is no news.
void AddUnreported(const Violations& found, absl::string_view prefix, Violations& violations);

}  // namespace trainyard
