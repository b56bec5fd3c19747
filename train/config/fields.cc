#include "train/config/fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/declared.h"
#include "train/config/aliases.h"

namespace trainyard {
namespace {

// Reads only decimal numbers: Abseil would also read hexadecimal, "nan" and surrounding spaces.
bool ReadDecimal(absl::string_view text, double& out) {
  return text.find_first_not_of("0123456789+-.eE") == absl::string_view::npos &&
         absl::SimpleAtod(text, &out) && std::isfinite(out);
}

// Whether the key can be part of a field's path without quotes.
bool IsPlainKey(absl::string_view key) {
  return !key.empty() && key.size() <= 64 &&
         std::all_of(key.begin(), key.end(), absl::ascii_isgraph);
}

std::string WantedOneOf(const std::vector<std::string>& names) {
  return absl::StrCat("one of ", absl::StrJoin(names, ", "));
}

// The whole number that the field holds; nullopt if there is none, or if the type cannot hold it.
template <typename Integer>
std::optional<Integer> ReadWhole(absl::string_view text) {
  Integer value = 0;
  const std::optional<std::string> digits = WholeDigits(text);
  if (!digits || !absl::SimpleAtoi(*digits, &value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> WholeDigits(absl::string_view text) {
  constexpr int64_t kMostDigits = 20, kMostPlaces = 400;  // Of 2^64, and of a double.
  double decimal = 0;
  if (!ReadDecimal(text, decimal)) return std::nullopt;
  const bool negative = absl::ConsumePrefix(&text, "-");
  absl::ConsumePrefix(&text, "+");
  const size_t e = text.find_first_of("eE"), point = text.substr(0, e).find('.');
  int64_t places = 0;  // By which the point is to the right of the digits.
  if (e != text.npos && !absl::SimpleAtoi(text.substr(e + 1), &places)) return std::nullopt;
  if (places < -kMostPlaces || places > kMostPlaces) return std::nullopt;
  std::string digits(text.substr(0, e));
  if (point != text.npos) {
    digits.erase(point, 1);
    places -= int64_t(digits.size() - point);
  }
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.empty()) return "0";
  for (; places < 0 && digits.back() == '0'; ++places) digits.pop_back();
  if (places < 0 || int64_t(digits.size()) > kMostDigits - places) return std::nullopt;
  return absl::StrCat(negative ? "-" : "", digits, std::string(size_t(places), '0'));
}

std::optional<double> ReadNumber(absl::string_view text) {
  double value = 0;
  if (!ReadDecimal(text, value)) return std::nullopt;
  if (std::abs(value) >= kSmallestNumber) return value;
  // A number that is too small for a double is read as 0, too. Only its digits differ from those of
  // 0.
  const absl::string_view digits = text.substr(0, text.find_first_of("eE"));
  const bool zero = digits.find_first_of("123456789") == absl::string_view::npos;
  if (!zero || std::signbit(value)) return std::nullopt;
  return value;
}

std::string Quoted(absl::string_view text) {
  size_t shown = std::min<size_t>(text.size(), 60);
  // Do not cut through the middle of a character.
  while (shown < text.size() && shown > 0 && (uint8_t(text[shown]) & 0xc0) == 0x80) --shown;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, shown)), "\"",
                      shown < text.size() ? "..." : "");
}

void AddUnreported(const Violations& found, absl::string_view prefix, Violations& violations) {
  const std::vector<FieldViolation> reported = violations.list();
  for (FieldViolation violation : found.list()) {
    violation.field = absl::StrCat(prefix, violation.field);
    const bool known = std::any_of(reported.begin(), reported.end(), [&](const auto& v) {
      return violation.field == v.field ||
             absl::StartsWith(violation.field, absl::StrCat(v.field, "."));
    });
    if (!known) violations.Add(std::move(violation));
  }
}

Fields::Fields(const YamlNode& node, std::string path, Violations& violations, Absent absent)
    : node_(node), path_(std::move(path)), violations_(violations), absent_(absent) {
  if (node.kind != YamlNode::Kind::kMapping && node.kind != YamlNode::Kind::kNull) {
    violations_.Add(path_, "a mapping", Name(node.kind));
  }
}

Fields::~Fields() {
  for (const auto& [name, value] : node_.fields) {
    if (IsKnown(name)) continue;
    // The table of aliases names a field of the model as it stands in the model.
    std::string ours = root_->of_spec_ ? OurNameFor(name, root_->node_) : "";
    const bool of_model =
        path_.empty() && !ours.empty() && !IsKnown(ours.substr(0, ours.find('.')));
    if (of_model) ours = absl::StrCat("model.overrides.", ours);
    const std::string nearest = IsPlainKey(name) ? NearestName(name, known_) : "";
    const std::string help = !ours.empty() ? absl::StrCat("here it is ", ours)
                             : !nearest.empty()
                                 ? absl::StrCat("did you mean '", nearest, "'?")
                                 : absl::StrCat("known here: ", absl::StrJoin(known_, ", "));
    violations_.Add({.field = PathOf(name), .note = absl::StrCat("unknown field; ", help)});
  }
}

std::string Fields::PathOf(absl::string_view name) const {
  const std::string part = IsPlainKey(name) ? std::string(name) : Quoted(name);
  return path_.empty() ? part : absl::StrCat(path_, ".", part);
}

void Fields::Wrong(absl::string_view name, absl::string_view wanted, const YamlNode& found,
                   const absl::AlphaNum& nearest) {
  const std::string what =
      found.kind == YamlNode::Kind::kScalar ? Quoted(found.text) : Name(found.kind);
  violations_.Add(PathOf(name), wanted, what, nearest);
}

bool Fields::IsKnown(absl::string_view name) const {
  return std::find(known_.begin(), known_.end(), name) != known_.end();
}

bool Fields::ZeroIsStandard(const char* name) const {
  if (resolved() || !root_->of_spec_) return false;
  const std::string path = PathOf(name);
  const size_t before = root_->path_.empty() ? 0 : root_->path_.size() + 1;
  const DeclaredField* const declared = FindDeclared(absl::string_view(path).substr(before));
  return declared != nullptr && declared->zero_is_standard;
}

void Fields::Know(const char* name) {
  if (!IsKnown(name)) known_.push_back(name);
}

void Fields::KnowAll() {
  for (const auto& [name, value] : node_.fields) known_.push_back(name);
}

bool Fields::Present(const char* name) {
  Know(name);
  const YamlNode* node = node_.Find(name);
  return node != nullptr && node->kind != YamlNode::Kind::kNull;
}

const YamlNode* Fields::Ask(const char* name) {
  if (Present(name)) return node_.Find(name);
  if (resolved()) Add(name, "a value, which a job with a `format` must have", "none");
  return nullptr;
}

bool Fields::Given(const char* name) {
  return resolved() || !root_->of_spec_ ? PresentOrNull(name) : Present(name) || Stands(name);
}

bool Fields::PresentOrNull(const char* name) {
  return Present(name) || (node_.Find(name) == nullptr && Ask(name) != nullptr);
}

const YamlNode* Fields::Scalar(const char* name, absl::string_view wanted) {
  const YamlNode* node = !resolved() && Given(name) ? node_.Find(name) : Ask(name);
  if (node == nullptr) return nullptr;
  if (node->kind == YamlNode::Kind::kScalar) return node;
  Wrong(name, wanted, *node);
  return nullptr;
}

YamlNode Fields::Merged(const char* name, const YamlNode& node, const Inlined& inlined) {
  YamlNode merged = node;
  const YamlNode* const inner = node.Find(inlined.name);
  if (inner == nullptr) return merged;
  std::erase_if(merged.fields, [&](const YamlField& field) { return field.key == inlined.name; });
  if (inner->kind == YamlNode::Kind::kNull) return merged;
  const std::string path = PathOf(name), inner_path = absl::StrCat(path, ".", inlined.name);
  if (inner->kind != YamlNode::Kind::kMapping) {
    violations_.Add(inner_path, "a mapping", Name(inner->kind));
    return merged;
  }
  if (inner->fields.size() > inlined.most) {
    violations_.Add(inner_path, absl::StrCat("at most ", inlined.most, " fields"),
                    inner->fields.size(), inlined.most);
    return merged;
  }
  for (const YamlField& field : inner->fields) {
    const std::string at =
        absl::StrCat(inner_path, ".", IsPlainKey(field.key) ? field.key : Quoted(field.key));
    if (field.key.size() > inlined.most_name_bytes) {
      violations_.Add(at, absl::StrCat("a name of at most ", inlined.most_name_bytes, " bytes"),
                      field.key.size());
    } else if (field.value.kind != YamlNode::Kind::kScalar) {
      violations_.Add(at, "a single value", Name(field.value.kind));
    } else if (merged.Find(field.key) != nullptr) {
      violations_.Add(at, absl::StrCat("the field once, here or as ", path, ".", field.key),
                      "both");
    } else {
      merged.fields.push_back(field);
    }
  }
  return merged;
}

void Fields::Field(const char* name, std::string& out) {
  const YamlNode* node = Scalar(name, "text");
  if (node != nullptr) out = node->text;
}

void Fields::Field(const char* name, bool& out) {
  const YamlNode* node = Scalar(name, "true or false");
  if (node == nullptr) return;
  if (node->text == "true") {
    out = true;
  } else if (node->text == "false") {
    out = false;
  } else {
    Wrong(name, "true or false", *node);
  }
}

void Fields::Field(const char* name, double& out) {
  const YamlNode* node = Scalar(name, "a number");
  if (node == nullptr) return;
  if (const std::optional<double> value = ReadNumber(node->text)) {
    out = *value;
    return;
  }
  double decimal = 0;
  if (!ReadDecimal(node->text, decimal)) return Wrong(name, "a finite number", *node);
  // Which number is the nearest legal one depends on the field.
  Wrong(name,
        absl::StrCat("0 without a sign, or a number from ", kSmallestNumber, ", as f32 has it"),
        *node);
}

void Fields::Field(const char* name, uint64_t& out) {
  const YamlNode* node = Scalar(name, "a whole number");
  if (node == nullptr) return;
  if (const std::optional<uint64_t> value = ReadWhole<uint64_t>(node->text)) {
    out = *value;
    return;
  }
  double decimal = 0;
  const bool negative = ReadDecimal(node->text, decimal) && decimal < 0;
  Wrong(name, "a whole number from 0 to 18446744073709551615", *node, negative ? "0" : "");
}

void Fields::Field(const char* name, int64_t& out) {
  const YamlNode* node = Scalar(name, "a whole number");
  if (node == nullptr) return;
  if (const std::optional<int64_t> value = ReadWhole<int64_t>(node->text)) {
    if (*value != 0 || !ZeroIsStandard(name)) out = *value;
    return;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double is not exact.
  double decimal = 0;
  const bool near = ReadDecimal(node->text, decimal) && std::abs(decimal) <= kExact;
  Wrong(name, "a whole number", *node, near ? absl::StrCat(std::llround(decimal)) : "");
}

void Fields::Field(const char* name, const WholeNumbers& range, int64_t& out) {
  const std::string wanted = absl::StrCat("a whole number from ", range.least, " to ", range.most);
  const YamlNode* node = Scalar(name, wanted);
  if (node == nullptr) return;
  const std::optional<int64_t> value = ReadWhole<int64_t>(node->text);
  if (value && range.Holds(*value)) {
    out = *value;
    return;
  }
  double decimal = 0;
  if (!ReadDecimal(node->text, decimal)) return Wrong(name, wanted, *node);
  const int64_t nearest = decimal <= double(range.least)  ? range.least
                          : decimal >= double(range.most) ? range.most
                                                          : std::llround(decimal);
  Wrong(name, wanted, *node, nearest);
}

void Fields::Field(const char* name, std::vector<std::string>& out) {
  const YamlNode* node = Ask(name);
  if (node == nullptr) return;
  if (node->kind != YamlNode::Kind::kSequence) return Wrong(name, "a list of texts", *node);
  for (size_t i = 0; i < node->items.size(); ++i) {
    const YamlNode& item = node->items[i];
    if (item.kind == YamlNode::Kind::kScalar) {
      out.push_back(item.text);
    } else {
      Wrong(absl::StrCat(name, "[", i, "]"), "text", item);
    }
  }
}

void Fields::Field(const char* name, std::vector<int64_t>& out) {
  const YamlNode* node = Ask(name);
  if (node == nullptr) return;
  if (node->kind != YamlNode::Kind::kSequence) {
    return Wrong(name, "a list of whole numbers", *node);
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    const YamlNode& item = node->items[i];
    const bool scalar = item.kind == YamlNode::Kind::kScalar;
    const std::optional<int64_t> value = scalar ? ReadWhole<int64_t>(item.text) : std::nullopt;
    if (!value) Wrong(absl::StrCat(name, "[", i, "]"), "a whole number", item);
    out.push_back(value.value_or(0));  // The other items keep their index for later checks.
  }
}

void Fields::Field(const char* name, std::map<std::string, std::string>& out) {
  const YamlNode* node = Ask(name);
  if (node == nullptr) return;
  if (node->kind != YamlNode::Kind::kMapping) return Wrong(name, "a mapping of texts", *node);
  for (const auto& [key, value] : node->fields) {
    if (value.kind == YamlNode::Kind::kScalar) {
      out[key] = value.text;
    } else {
      Wrong(absl::StrCat(name, ".", key), "text", value);
    }
  }
}

void Fields::Field(const char* name, std::map<std::string, double>& out) {
  Section(name, [&](Fields& section) {
    for (const auto& [key, value] : section.node_.fields) section.Field(key.c_str(), out[key]);
  });
}

int Fields::Choice(const char* name, absl::string_view prefix,
                   const std::vector<std::string>& names, const YamlNode& node) {
  const std::string value{absl::StripPrefix(node.text, prefix)};
  if (value == "UNSPECIFIED" && value != node.text) return -1;
  const auto it = std::find(names.begin(), names.end(), value);
  if (it != names.end()) return int(it - names.begin());
  const std::string meant = OurValueFor(absl::AsciiStrToUpper(value));
  const bool known = std::find(names.begin(), names.end(), meant) != names.end();
  const std::string nearest = known ? meant : NearestName(absl::AsciiStrToUpper(value), names);
  Wrong(name, WantedOneOf(names), node, nearest);
  return -1;
}

int Fields::EnumIndex(const char* name, absl::string_view prefix,
                      const std::vector<std::string>& names, bool open) {
  const YamlNode* const node = Scalar(name, WantedOneOf(names));
  const int index = node == nullptr ? -1 : Choice(name, prefix, names, *node);
  const std::string beside = absl::StrCat(name, kNameBeside);
  if (!open || resolved() || !Stands(beside.c_str()) || !Present(beside.c_str())) return index;
  const YamlNode& text = *node_.Find(beside);
  if (text.kind == YamlNode::Kind::kScalar && text.text.empty()) return index;  // As on the wire.
  const int named = Choice(name, prefix, names, text);
  if (index >= 0 && named >= 0 && index != named) {
    Add(name, absl::StrCat("the same as in ", beside, ", or only one of them"),
        absl::StrCat(names[size_t(index)], " and ", names[size_t(named)]));
  }
  return index >= 0 ? index : named;
}

std::string Fields::OneOf(const std::vector<std::string>& names, absl::string_view /*held*/) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool present = Present(name.c_str());  // In a spec, "synthetic:" is "synthetic: {}".
    if (present || (!resolved() && Stands(name.c_str()))) found.push_back(name);
  }
  if (found.size() > 1) {
    violations_.Add(path_, absl::StrCat("one of ", absl::StrJoin(names, ", ")),
                    absl::StrJoin(found, " and "));
  }
  if (found.empty() && resolved()) Ask(names[0].c_str());
  return found.empty() ? "" : found[0];
}

}  // namespace trainyard
