#include "cli/spec.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "cli/errors.h"
#include "cli/spec_reader.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "train/config/advice.h"
#include "train/config/fields.h"
#include "train/config/validate.h"

namespace trainyard::cli {
namespace {

// "line 7, column 3: ..." of the YAML parser as "spec.yaml: line 7, column 3: ...".
absl::StatusOr<YamlNode> Parsed(absl::string_view name, absl::string_view text) {
  absl::StatusOr<YamlNode> node = ParseYaml(text);
  if (node.ok()) return node;
  return absl::Status(node.status().code(),
                      absl::StrCat(name, ": not valid YAML: ", node.status().message()));
}

// The value of `key`, made where it is absent.
YamlNode& FindOrMake(YamlNode& node, const std::string& key) {
  if (node.kind != YamlNode::Kind::kMapping) {
    node = YamlNode();
    node.kind = YamlNode::Kind::kMapping;
  }
  for (auto& [name, value] : node.fields) {
    if (name == key) return value;
  }
  return node.fields.emplace_back(YamlField{key, YamlNode()}).value;
}

// Of a oneof there can be one member, and of frozen and trainable one: removes what stands beside
// `chosen`.
void DropOtherChoices(YamlNode& node, const google::protobuf::FieldDescriptor& chosen) {
  if (chosen.containing_type() == v1::JobSpec::descriptor()) {
    const std::string other = chosen.name() == "frozen"      ? "trainable"
                              : chosen.name() == "trainable" ? "frozen"
                                                             : "";
    std::erase_if(node.fields, [&](const YamlField& field) { return field.key == other; });
  }
  const auto* oneof = chosen.real_containing_oneof();
  if (oneof == nullptr) return;
  std::erase_if(node.fields, [&](const auto& entry) {
    const auto* other = chosen.containing_type()->FindFieldByName(entry.key);
    return other != nullptr && other != &chosen && other->real_containing_oneof() == oneof;
  });
}

// Whether a spec can have this field; any key of a map.
bool CanHave(const std::vector<std::string>& path) {
  const google::protobuf::Descriptor* message = v1::JobSpec::descriptor();
  for (size_t i = 0; i < path.size(); ++i) {
    const auto* field = message == nullptr ? nullptr : message->FindFieldByName(path[i]);
    if (field == nullptr) {
      return message != nullptr && i + 1 == path.size() && IsBeside(path[i], *message);
    }
    if (field->is_map()) return path.size() <= i + 2;
    message = field->message_type();
  }
  return true;
}

void Remove(YamlNode& node, absl::Span<const std::string> path) {
  if (path.size() == 1) {
    std::erase_if(node.fields, [&](const auto& entry) { return entry.key == path[0]; });
  } else if (node.Find(path[0]) != nullptr) {
    Remove(FindOrMake(node, path[0]), path.subspan(1));
  }
}

}  // namespace

absl::Status SpecDocument::ApplySet(const std::string& set) {
  if (const std::string valid = ValidUtf8(set); valid != set) {
    return UsageError(absl::StrCat("--set: wanted UTF-8, found '", valid, "'"));
  }
  const size_t equals = set.find('=');
  const std::vector<std::string> path = absl::StrSplit(set.substr(0, equals), '.');
  if (equals == std::string::npos || std::count(path.begin(), path.end(), "") != 0) {
    return UsageError(
        absl::StrCat("--set: wanted path=value, as in batch.global=32, found '", set, "'"));
  }
  const std::string made = absl::StrCat("--set ", set);
  const std::string text = set.substr(equals + 1);
  YamlNode value;
  if (text.empty()) {
    value.kind = YamlNode::Kind::kScalar;
  } else {
    ASSIGN_OR_RETURN(value, Parsed(made, text));
  }
  if (value.kind == YamlNode::Kind::kNull && CanHave(path)) {
    Remove(root_, path);
    RecordSet(absl::StrJoin(path, "."), made);
    return absl::OkStatus();
  }
  YamlNode* node = &root_;
  const google::protobuf::Descriptor* message = v1::JobSpec::descriptor();
  std::string so_far;
  for (const std::string& key : path) {
    const auto* field = message == nullptr ? nullptr : message->FindFieldByName(key);
    if (field != nullptr) DropOtherChoices(*node, *field);
    message = field == nullptr ? nullptr : field->message_type();
    // What was a value becomes a mapping.
    if (node->kind != YamlNode::Kind::kMapping) set_[so_far] = made;
    absl::StrAppend(&so_far, so_far.empty() ? "" : ".", key);
    if (node->Find(key) == nullptr) set_[so_far] = made;
    node = &FindOrMake(*node, key);
  }
  RecordSet(so_far, made);
  *node = std::move(value);
  return absl::OkStatus();
}

void SpecDocument::RecordSet(const std::string& path, const std::string& made) {
  // What earlier ones said below is gone.
  std::erase_if(set_, [&](const auto& entry) {
    return absl::StartsWith(entry.first, absl::StrCat(path, "."));
  });
  set_[path] = made;
}

absl::StatusOr<SpecDocument> SpecDocument::Parse(absl::string_view name, absl::string_view text,
                                                 const std::vector<std::string>& sets) {
  SpecDocument document;
  document.name_ = std::string(name);
  ASSIGN_OR_RETURN(document.root_, Parsed(name, text));
  if (document.root_.kind != YamlNode::Kind::kMapping) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": wanted a job spec, fields as 'name: value', found ", Name(document.root_.kind)));
  }
  for (const std::string& set : sets) RETURN_IF_ERROR(document.ApplySet(set));
  return document;
}

absl::StatusOr<v1::JobSpec> SpecDocument::ToProto() const {
  v1::JobSpec spec;
  Violations checked, violations;
  YamlNode root = root_;  // `format` is for what the controller writes, and unknown here.
  std::erase_if(root.fields, [](const YamlField& field) { return field.key == "format"; });
  ParseAndValidateJob(root, checked);
  SpecReader(checked, violations).Read(root_, "", spec);
  if (violations.empty()) return spec;
  // What the controller would have found besides, so that all comes at once.
  AddUnreported(checked, "", violations);
  return violations.ToStatus();
}

std::string SpecDocument::Place(absl::string_view field) const {
  std::string place = name_, path;
  bool of_set = false;  // Then lines below are not those of the text.
  const YamlNode* node = &root_;
  for (absl::string_view key : absl::StrSplit(field, '.')) {
    const YamlNode* value = node->Find(key);
    if (value == nullptr) {  // An item, "ranks[1]", is where its list is.
      key = key.substr(0, key.find('['));
      value = node->Find(key);
    }
    node = value;
    absl::StrAppend(&path, path.empty() ? "" : ".", key);
    if (const auto made = set_.find(path); made != set_.end()) {
      place = made->second;
      of_set = true;
    }
    if (node == nullptr) break;  // The field is absent: its nearest parent is the place.
    if (!of_set && node->line != 0) place = absl::StrCat(name_, ":", node->line);
  }
  return place;
}

std::optional<FieldViolation> SpecDocument::OtherSet(
    const std::vector<FieldViolation>& violations) const {
  for (const FieldViolation& violation : violations) {
    if (set_.contains(violation.field)) return std::nullopt;
  }
  Violations known;  // Whoever made `violations` has them, too.
  const JobConfig job = ParseAndValidateJob(root_, known);
  for (const auto& [path, made] : set_) {
    if (auto change = OneChange(job, path)) return change;
  }
  return std::nullopt;
}

absl::Status SpecDocument::Explain(const absl::Status& status) const {
  std::vector<FieldViolation> violations = Violations::FromStatus(status);
  if (violations.empty()) return status;
  for (FieldViolation& violation : violations) {
    violation.field = std::string(absl::StripPrefix(violation.field, "spec."));
  }
  if (const auto first = OtherSet(violations)) violations.insert(violations.begin(), *first);
  std::vector<std::string> lines;
  for (const auto& [field, description] : violations) {
    lines.push_back(absl::StrCat(Place(field), ": ", field, ": ", description));
  }
  return absl::Status(status.code(), absl::StrJoin(lines, "\n"));
}

}  // namespace trainyard::cli
