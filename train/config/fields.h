// Reads the fields of one mapping into typed variables and collects everything that is wrong. A
// field is known if it was asked for: when the reader is destroyed, it reports all other fields as
// unknown. FieldWriter (resolved_job.cc) has the same functions and writes.

#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/interval.h"
#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard {

// Zero and the positive numbers of an integer's wire type.
inline constexpr WholeNumbers kUint32{.least = 0, .most = std::numeric_limits<uint32_t>::max()};
inline constexpr WholeNumbers kInt64{.least = 0};

// The meaning of a missing field.
enum class Absent {
  kDefault,  // It has its default, as in a spec that a person writes.
  kWrong,    // It was lost: a job that the controller resolved has every field.
};

// The end of the name of the text field beside an enum field whose enum is open on the wire.
inline constexpr char kNameBeside[] = "_name";

class Fields {
 public:
  // `node` and `violations` must outlive the reader. `path` is "" for the document itself. Adds a
  // violation if the node is not a mapping, and then treats it as empty.
  Fields(const YamlNode& node, std::string path, Violations& violations,
         Absent absent = Absent::kDefault);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  // Call this if the document is no job spec: unknown fields then are not looked up among the names
  // of other frameworks.
  void NotOfASpec() { of_spec_ = false; }

  bool resolved() const { return absent_ == Absent::kWrong; }

  // Each of these leaves `out` as it is if the field is absent or wrong. In a spec, null is wrong
  // for a single value, and the same as absent for a list or a mapping. In a list of numbers a
  // wrong item becomes 0.
  void Field(const char* name, std::string& out);
  void Field(const char* name, bool& out);
  void Field(const char* name, double& out);
  void Field(const char* name, uint64_t& out);
  // Any number; Validate checks the limits. Where 0 means the default (declared.h), 0 leaves `out`
  // as it is. A resolved job has the default itself.
  void Field(const char* name, int64_t& out);
  void Field(const char* name, const WholeNumbers& range, int64_t& out);
  void Field(const char* name, std::vector<std::string>& out);
  void Field(const char* name, std::vector<int64_t>& out);
  void Field(const char* name, std::map<std::string, std::string>& out);
  void Field(const char* name, std::map<std::string, double>& out);

  // In a resolved job, null is a legal value here.
  template <typename T>
  void Field(const char* name, std::optional<T>& out) {
    if (!Given(name)) return;
    T value{};
    Field(name, value);
    out = value;
  }

  // `values` may be written with or without `prefix`. PREFIX_UNSPECIFIED leaves `out` as it is. If
  // `open`, the enum on the wire need not have all values: a spec may have the value in the text
  // field NAME_name as well. Messages are about NAME.
  template <typename Enum>
  void EnumField(const char* name, absl::string_view prefix,
                 const std::vector<std::pair<std::string, Enum>>& values, Enum& out,
                 bool open = false) {
    std::vector<std::string> names;
    for (const auto& [text, value] : values) names.push_back(text);
    const int index = EnumIndex(name, prefix, names, open);
    if (index >= 0) out = values[size_t(index)].second;
  }

  // Calls read(Fields&) with the mapping under `name` if there is one. Returns whether the field is
  // present.
  template <typename Read>
  bool Section(const char* name, Read&& read) {
    const YamlNode* node = Ask(name);
    if (node == nullptr) return false;
    Fields section(*node, PathOf(name), violations_, absent_);
    section.root_ = root_;
    read(section);
    return true;
  }
  // The same for an optional mapping; calls read(Fields&, T&). Null is a legal value and means
  // none.
  template <typename T, typename Read>
  void OptionalSection(const char* name, std::optional<T>& out, Read&& read) {
    if (!PresentOrNull(name)) return;
    Section(name, [&](Fields& section) { read(section, out.emplace()); });
  }

  // Reads a list of mappings: appends an item to `out` for each, and calls read(Fields&, T&).
  template <typename T, typename Read>
  void List(const char* name, std::vector<T>& out, Read&& read) {
    const YamlNode* node = Ask(name);
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::kSequence) return Wrong(name, "a list of mappings", *node);
    out.clear();
    for (const YamlNode& item : node->items) {
      const std::string path = absl::StrCat(PathOf(name), "[", out.size(), "]");
      Fields section(item, path, violations_, absent_);
      section.root_ = root_;
      read(section, out.emplace_back());
    }
  }

  // A mapping within a section whose entries count as entries of the section.
  struct Inlined {
    const char* name;
    size_t most;             // Limit on the number of entries.
    size_t most_name_bytes;  // Limit on an entry's name.
  };
  // The same for a section that contains such a mapping. Adds a violation for too many entries, for
  // too long a name, for a name that is in both mappings, and for an entry that is not a single
  // value.
  template <typename Read>
  bool Section(const char* name, const Inlined& inlined, Read&& read) {
    const YamlNode* node = Ask(name);
    if (node == nullptr) return false;
    const YamlNode merged = Merged(name, *node, inlined);
    Fields section(merged, PathOf(name), violations_, absent_);
    section.root_ = root_;
    read(section);
    return true;
  }

  // Returns the one of `names` that is present, or "" if none is. If several are present, adds a
  // violation and returns the first. `held` is for writers.
  std::string OneOf(const std::vector<std::string>& names, absl::string_view held);
  // Reads the mapping under one of these names, also if OneOf has returned another name.
  template <typename Read>
  void Alternative(const char* name, absl::string_view /*chosen*/, Read&& read) {
    if (Present(name)) Section(name, std::forward<Read>(read));
  }

  // Whether the mapping has the field, null or not. Does not make the field known.
  bool Stands(const char* name) const { return node_.Find(name) != nullptr; }
  // Returns the field as it was written, for fields with a form of their own. Null if absent or
  // null.
  const YamlNode* Node(const char* name) { return Ask(name); }

  void Add(absl::string_view name, const absl::AlphaNum& wanted, const absl::AlphaNum& found = "") {
    violations_.Add(PathOf(name), wanted, found);
  }

  bool Present(const char* name);  // Whether the field is there and not null.
  // Whether a field that may be null is there and not null. In a resolved job it must not be
  // absent.
  bool PresentOrNull(const char* name);
  // Whether a single value must follow. In a spec this is so if the field stands there: a name
  // without a value is a mistake.
  bool Given(const char* name);
  void KnowAll();  // Reports no field as unknown.
  std::string PathOf(absl::string_view name) const;
  void Wrong(absl::string_view name, absl::string_view wanted, const YamlNode& found,
             const absl::AlphaNum& nearest = "");

 private:
  void Know(const char* name);
  const YamlNode* Ask(const char* name);  // Null if the field is absent or null.
  const YamlNode* Scalar(const char* name, absl::string_view wanted);
  YamlNode Merged(const char* name, const YamlNode& node, const Inlined& inlined);
  int EnumIndex(const char* name, absl::string_view prefix, const std::vector<std::string>& names,
                bool open);
  // Returns the index of the name that `node` holds, or -1.
  int Choice(const char* name, absl::string_view prefix, const std::vector<std::string>& names,
             const YamlNode& node);

  bool IsKnown(absl::string_view name) const;
  bool ZeroIsStandard(const char* name) const;

  const YamlNode& node_;
  const Fields* root_ = this;  // The reader of the mapping of which this one is a part.
  const std::string path_;
  Violations& violations_;
  const Absent absent_;
  bool of_spec_ = true;
  std::vector<std::string> known_;
};

// The smallest number above 0 that a spec may hold. Smaller numbers are subnormal in f32, in which
// ranks compute: they have fewer digits, and some devices treat them as 0.
inline constexpr double kSmallestNumber = 1.2e-38;

// Returns the number that a floating-point field of a spec holds. It must be a finite decimal, and
// either 0 without a sign or at least kSmallestNumber in size. Otherwise returns nullopt.
std::optional<double> ReadNumber(absl::string_view text);

// Returns the digits of the whole number that a field of a spec holds, as YAML or protobuf JSON
// writes it: "1000", "-5", "1e3" or "1.0". Nullopt: it is no whole number, or has more than 20
// digits. The digits are exact, which a double beyond 2^53 would not be.
std::optional<std::string> WholeDigits(absl::string_view text);

// The text for messages: cut and escaped.
std::string Quoted(absl::string_view text);

// Adds the violations of `found`, with `prefix` before their fields. Leaves out fields that already
// have a violation, and fields within such a field. A field that could not be read has its default,
// and a problem with that default must not be reported.
void AddUnreported(const Violations& found, absl::string_view prefix, Violations& violations);

}  // namespace trainyard
