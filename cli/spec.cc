#include "cli/spec.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/errors.h"
#include "common/files.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "models/arch/config_json.h"
#include "models/hf/model.h"
#include "models/program/optimizer/optimizer.h"
#include "train/config/advice.h"
#include "train/config/message_node.h"
#include "train/config/parse.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/config/validate_layout.h"

namespace trainyard::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// "line 7, column 3: ..." of the YAML parser as "spec.yaml: line 7, column 3: ...".
absl::StatusOr<YamlNode> ParsedYaml(absl::string_view name, absl::string_view text) {
  absl::StatusOr<YamlNode> node = ParseYaml(text);
  if (node.ok()) return node;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": not valid YAML: ", node.status().message()));
}

// The value of `key`, made where it is absent.
YamlNode& FindOrMake(YamlNode& node, const std::string& key) {
  if (node.kind != YamlNode::Kind::kMapping) node = {.kind = YamlNode::Kind::kMapping};
  if (YamlNode* const value = node.Find(key)) return *value;
  return node.fields.emplace_back(YamlField{key, YamlNode()}).value;
}

void Remove(YamlNode* node, const std::vector<std::string>& path) {
  for (size_t i = 0; node != nullptr && i + 1 < path.size(); ++i) node = node->Find(path[i]);
  if (node == nullptr) return;
  std::erase_if(node->fields, [&](const YamlField& field) { return field.key == path.back(); });
}

// The field of each key of a path in specs. Null: a spec cannot have it.
std::vector<const FieldDescriptor*> FieldsAlong(const std::vector<std::string>& path) {
  std::vector<const FieldDescriptor*> fields;
  const Descriptor* message = v1::JobSpec::descriptor();
  for (const std::string& key : path) {
    fields.push_back(message == nullptr ? nullptr : FieldOf(*message, key));
    message = fields.back() == nullptr ? nullptr : fields.back()->message_type();
  }
  return fields;
}

// Whether a spec that has the field cannot have the other field of the same message.
bool Excludes(const FieldDescriptor* field, const std::string& name) {
  const FieldDescriptor* const other =
      field == nullptr ? nullptr : field->containing_type()->FindFieldByName(name);
  if (other == nullptr || other == field) return false;
  if (const auto* const oneof = field->real_containing_oneof()) {
    return oneof == other->real_containing_oneof();
  }
  if (FindOptimizer(field->name()) != nullptr && FindOptimizer(name) != nullptr) return true;
  const auto [first, second] = std::minmax(field->name(), name);
  return (first == "frozen" && second == "trainable") ||
         (first == "schedule" && second == "schedule_name");
}

}  // namespace

absl::Status SpecDocument::Set(const std::string& set, const std::string& made) {
  if (const std::string valid = ValidUtf8(set); valid != set) {
    return UsageError(absl::StrCat("--set: wanted UTF-8, found '", valid, "'"));
  }
  const size_t equals = set.find('=');
  const std::vector<std::string> path = absl::StrSplit(set.substr(0, equals), '.');
  if (equals == std::string::npos || std::count(path.begin(), path.end(), "") != 0) {
    return UsageError(
        absl::StrCat("--set: wanted path=value, as in batch.global=32, found '", set, "'"));
  }
  YamlNode value{.kind = YamlNode::Kind::kScalar};
  if (equals + 1 < set.size()) {
    ASSIGN_OR_RETURN(value, ParsedYaml(made, set.substr(equals + 1)));
  }
  const std::string whole = absl::StrJoin(path, ".");
  // What earlier ones said below is gone.
  std::erase_if(set_, [&](const auto& entry) {
    return absl::StartsWith(entry.first, absl::StrCat(whole, "."));
  });
  set_[whole] = made;
  const std::vector<const FieldDescriptor*> fields = FieldsAlong(path);
  if (value.kind == YamlNode::Kind::kNull && fields.back() != nullptr) {
    Remove(&root_, path);
    return absl::OkStatus();
  }
  YamlNode* node = &root_;
  std::string so_far;
  for (size_t i = 0; i < path.size(); ++i) {
    std::erase_if(node->fields, [&](const YamlField& other) {
      if (!Excludes(fields[i], other.key)) return false;
      notes_.push_back(absl::StrCat(made, " replaces ", so_far, so_far.empty() ? "" : ".",
                                    other.key, " and all that was set there"));
      return true;
    });
    // What was a value becomes a mapping.
    if (node->kind != YamlNode::Kind::kMapping) set_[so_far] = made;
    absl::StrAppend(&so_far, so_far.empty() ? "" : ".", path[i]);
    if (node->Find(path[i]) == nullptr) set_[so_far] = made;
    node = &FindOrMake(*node, path[i]);
  }
  *node = std::move(value);
  return absl::OkStatus();
}

absl::StatusOr<SpecDocument> SpecDocument::Read(const std::string& path,
                                                const std::vector<std::string>& sets) {
  const bool standard_input = path == "-";
  const auto text = ReadFile(standard_input ? "/dev/stdin" : path, 1 << 20);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), "; 'trainyard recipes' lists specs to start with"));
  }
  RETURN_IF_ERROR(text.status());
  return Parse(standard_input ? "standard input" : path, *text, sets);
}

absl::StatusOr<SpecDocument> SpecDocument::Parse(absl::string_view name, absl::string_view text,
                                                 const std::vector<std::string>& sets) {
  SpecDocument document;
  document.name_ = std::string(name);
  ASSIGN_OR_RETURN(document.root_, ParsedYaml(name, text));
  if (document.root_.kind != YamlNode::Kind::kMapping) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": wanted a job spec, fields as 'name: value', found ", Name(document.root_.kind)));
  }
  for (const std::string& set : sets) {
    RETURN_IF_ERROR(document.Set(set, absl::StrCat("--set ", set)));
  }
  return document;
}

absl::Status SpecDocument::ResolveImport() {
  Violations unreadable, found;
  const ModelChoice choice = ParseSpec(root_, unreadable).model;
  if (!choice.preset.empty() || choice.architecture) return absl::OkStatus();
  for (const FieldViolation& violation : unreadable.list()) {
    if (absl::StartsWith(violation.field, "model")) return unreadable.ToStatus();
  }
  if (choice.import_path.empty()) {
    const YamlNode* const given = root_.Find("model");
    if (given == nullptr || given->Find("import") == nullptr) return absl::OkStatus();
    return WrongField("model.import", "the path of a Hugging Face directory", "an empty path");
  }
  absl::StatusOr<ModelConfig> model = ReadHfConfig(choice.import_path, choice.ignore_keys);
  if (!model.ok()) {
    found.Add({.field = "model.import", .note = std::string(model.status().message())});
    return found.ToStatus();
  }
  if (choice.overrides) {
    const ModelConfig imported = *model;
    model = Override(imported, *choice.overrides, found, "model.overrides");
    Validate(*model, found, "model.overrides");
    if (const auto differs = FirstDifference(imported, *model, MayDiffer::kAtStart)) {
      found.Add({.field = "model.overrides",
                 .note = absl::StrCat("the weights are of another model: ", *differs)});
    }
    RETURN_IF_ERROR(found.ToStatus());
  }
  YamlNode& section = FindOrMake(root_, "model");
  Remove(&section, {"overrides"});
  ASSIGN_OR_RETURN(FindOrMake(section, "architecture"), ParseYaml(JsonText(ToJson(*model))));
  imported_ = *std::move(model);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> SpecDocument::ToProto() const {
  v1::JobSpec spec;
  Violations unreadable, all;
  ParseSpec(root_, unreadable);
  const absl::Status filled = unreadable.empty() ? FillMessage(root_, spec) : absl::OkStatus();
  if (unreadable.empty() && filled.ok()) return spec;
  ParseAndValidateSpec(root_, all);  // What the controller would have found besides.
  return all.empty() ? filled : all.ToStatus();
}

absl::StatusOr<SpecDocument::Parsed> SpecDocument::ToConfig() const {
  Violations violations;
  Parsed parsed{.job = ParseSpec(root_, violations), .model = {}};
  std::optional<ModelConfig> model = ResolveModel(parsed.job.model, violations);
  ValidateLayout(parsed.job, nullptr, violations);
  if (!violations.empty()) return violations.ToStatus();
  parsed.model = *std::move(model);
  return parsed;
}

std::string SpecDocument::Place(absl::string_view field) const {
  std::string place = name_, path;
  bool of_set = false;  // Then lines below are not those of the text.
  const YamlNode* node = &root_;
  for (absl::string_view key : absl::StrSplit(field, '.')) {
    // An item, "ranks[1]", is where its list is.
    if (node->Find(key) == nullptr) key = key.substr(0, key.find('['));
    node = node->Find(key);
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
  const JobConfig job = ParseAndValidateSpec(root_, known);
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
  for (const FieldViolation& violation : violations) {
    lines.push_back(absl::StrCat(Place(violation.field), ": ", violation.ToString()));
  }
  return absl::Status(status.code(), absl::StrJoin(lines, "\n"));
}

}  // namespace trainyard::cli
