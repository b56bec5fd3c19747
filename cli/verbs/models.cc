// trainyard models: prints the catalogue of architectures.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"
#include "models/arch/conventions.h"
#include "models/arch/registry.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;

// These names are an interface: the names of a spec's fields, and of the values derived from them.
ordered_json Describe(const Preset& preset, const Family& family) {
  const ParameterCount parameters = CountParameters(preset.config);
  ordered_json json = {
      {"name", preset.name},
      {"aliases", preset.aliases},
      {"family", family.name},
      {"parameters", parameters.total},
      {"active_parameters", parameters.active},
      {"published_checkpoint_bytes", parameters.total * kPublishedCheckpointBytes}};
  json.update(ToJson(preset.config));
  for (const Field& field : FieldsOf(preset.config)) {
    if (field.rule.fixed) json.erase(field.rule.name);
  }
  // A field for benchmarks, not of the model.
  if (json.contains("moe")) json["moe"].erase("fake_balanced");
  json["activation"] = family.activation;
  json["gated"] = family.gated;
  json["norm"] = family.norm;
  json["bias"] = family.bias;
  json["position"] = family.position;
  return json;
}

void PrintTable(const std::vector<ordered_json>& models, Output& output) {
  std::vector<std::vector<std::string>> rows;
  for (const ordered_json& m : models) {
    const auto number = [&](const char* key) {
      return m.contains(key) ? absl::StrCat(m.at(key).get<int64_t>()) : "-";
    };
    rows.push_back({m.at("name").get<std::string>(), m.at("family").get<std::string>(),
                    FormatCount(double(m.at("parameters").get<int64_t>())),
                    FormatCount(double(m.at("active_parameters").get<int64_t>())),
                    FormatBytes(m.at("published_checkpoint_bytes").get<double>()), number("layers"),
                    number("hidden"), number("ffn"), number("heads"), number("kv_heads"),
                    number("vocab"), number("max_seq")});
  }
  output.Table({{"MODEL"},
                {"FAMILY"},
                {"PARAMETERS", true},
                {"ACTIVE", true},
                {"CHECKPOINT", true},
                {"LAYERS", true},
                {"HIDDEN", true},
                {"FFN", true},
                {"HEADS", true},
                {"KV HEADS", true},
                {"VOCAB", true},
                {"MAX SEQ", true}},
               rows);
}

void PrintOne(const ordered_json& model, Output& output) {
  for (const auto& [key, value] : model.items()) {
    output.Line(absl::StrCat(key, std::string(key.size() < 18 ? 18 - key.size() : 1, ' '),
                             value.is_string() ? value.get<std::string>() : JsonText(value)));
  }
}

std::string LegalValues(const Field& field) {
  const FieldRule& rule = field.rule;
  if (rule.text != nullptr) return rule.text;
  if (!field.choices.empty()) return absl::StrJoin(field.choices, " or ");
  if (std::holds_alternative<bool>(field.value)) return "true or false";
  return std::holds_alternative<double>(field.value) ? rule.real.Words() : rule.whole.Words();
}

// Prints the table of a family, for people who write a spec.
absl::Status ListFields(const std::string& name, Output& output) {
  const Family* family = FindFamily(name);
  if (family == nullptr) {
    const absl::StatusOr<Preset> preset = FindPreset(name);
    if (preset.ok()) family = FindFamily(preset->config.family());
  }
  if (family == nullptr) {
    return UsageError(absl::StrCat("--fields: wanted a family (",
                                   absl::StrJoin(FamilyNames(), ", "), ") or a model, found \"",
                                   name, "\""));
  }
  ordered_json fields = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const Field& field : FieldsOf(family->defaults)) {
    if (field.rule.fixed) continue;
    const auto* const size = std::get_if<int64_t>(&field.value);
    const bool derived = size != nullptr && *size < field.rule.whole.least;
    const std::string initial = field.rule.required ? "(required)"
                                : derived           ? "(derived)"
                                                    : TextOf(field.value);
    rows.push_back({field.rule.name, initial, LegalValues(field), field.rule.help});
    fields.push_back({{"name", field.rule.name},
                      {"required", field.rule.required},
                      {"default", initial},
                      {"legal", LegalValues(field)},
                      {"help", field.rule.help}});
  }
  if (output.format() == Format::kJsonLines) {
    for (const ordered_json& field : fields) output.Line(JsonText(field));
  } else if (output.format() == Format::kJson) {
    output.Line(JsonText(fields, 2));
  } else {
    output.Table({{"FIELD"}, {"DEFAULT"}, {"LEGAL"}, {"ABOUT"}}, rows);
  }
  return absl::OkStatus();
}

absl::Status RunModels(const Context& context) {
  const std::string name = context.arguments.Text("NAME");
  if (context.arguments.Flag("--fields")) return ListFields(name, context.output);
  std::string wanted;
  const Family* const of_family = FindFamily(name);
  if (!name.empty() && of_family == nullptr) {
    ASSIGN_OR_RETURN(const Preset preset, FindPreset(name));
    wanted = preset.name;
  }
  std::vector<ordered_json> models;
  for (const Family& family : Families()) {
    if (of_family != nullptr && family.name != name) continue;
    for (const Preset& preset : family.presets) {
      if (wanted.empty() || preset.name == wanted) models.push_back(Describe(preset, family));
    }
  }
  Output& output = context.output;
  if (output.format() == Format::kJsonLines) {
    for (const ordered_json& model : models) output.Line(JsonText(model));
  } else if (output.format() == Format::kJson) {
    output.Line(JsonText((wanted.empty() ? ordered_json(models) : models[0]), 2));
  } else if (wanted.empty()) {
    PrintTable(models, output);
  } else {
    PrintOne(models[0], output);
  }
  return absl::OkStatus();
}

}  // namespace

Verb ModelsVerb() {
  return {.name = "models",
          .summary = "lists the models that a spec can use as preset, or describes one",
          .positionals = {{"NAME", "a model of the list, an alias, or a family", false}},
          .options = {FlagOption("--fields", "",
                                 "the fields that a spec may set for models of NAME's family")},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard models", "trainyard models llama3-8b -o json",
                       "trainyard models qwen3_moe --fields"},
          .run = RunModels};
}

}  // namespace trainyard::cli
