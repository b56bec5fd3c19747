// trainyard models: the catalogue of architectures.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "controller/cli/format.h"
#include "controller/cli/verbs/verbs.h"
#include "models/arch/registry.h"
#include "models/flops.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;

// Names are an interface: those of the spec, with what is derived beside them.
ordered_json Describe(const MoeConfig& moe) {
  ordered_json json;
  ForEachField([&](const char* name, const auto& field) { json[name] = Spelled(field); }, moe);
  json.erase("fake_balanced");  // A benchmark's, not a model's.
  return json;
}

ordered_json Describe(const Preset& preset, const Family& family) {
  const ModelConfig& c = preset.config;
  const ParameterCount parameters = CountParameters(c);
  ordered_json json = {{"name", preset.name},
                       {"aliases", preset.aliases},
                       {"family", c.family},
                       {"parameters", parameters.total},
                       {"active_parameters", parameters.active},
                       {"layers", c.layers},
                       {"hidden", c.hidden},
                       {"ffn", c.ffn},
                       {"heads", c.heads},
                       {"kv_heads", c.kv_heads},
                       {"head_dim", c.head_dim},
                       {"vocab", c.vocab},
                       {"max_seq", c.max_seq},
                       {"norm_eps", c.norm_eps},
                       {"tied", c.tied},
                       {"activation", family.activation},
                       {"gated", family.gated},
                       {"norm", family.norm},
                       {"bias", family.bias},
                       {"position", family.position}};
  if (c.rope_base != 0) json["rope_base"] = c.rope_base;
  if (c.rope_scaling) {
    json["rope_scaling"] = {{"factor", c.rope_scaling->factor},
                            {"low_freq_factor", c.rope_scaling->low_freq_factor},
                            {"high_freq_factor", c.rope_scaling->high_freq_factor},
                            {"original_max_seq", c.rope_scaling->original_max_seq}};
  }
  if (c.moe) json["moe"] = Describe(*c.moe);
  return json;
}

void PrintTable(const std::vector<ordered_json>& models, Output& output) {
  std::vector<std::vector<std::string>> rows;
  for (const ordered_json& m : models) {
    const auto number = [&](const char* key) { return absl::StrCat(m.at(key).get<int64_t>()); };
    rows.push_back({m.at("name").get<std::string>(), m.at("family").get<std::string>(),
                    FormatCount(double(m.at("parameters").get<int64_t>())),
                    FormatCount(double(m.at("active_parameters").get<int64_t>())), number("layers"),
                    number("hidden"), number("ffn"), number("heads"), number("kv_heads"),
                    number("vocab"), number("max_seq")});
  }
  output.Table({{"MODEL"},
                {"FAMILY"},
                {"PARAMETERS", true},
                {"ACTIVE", true},
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
                             value.is_string() ? value.get<std::string>() : value.dump()));
  }
}

absl::Status Run(const Context& context) {
  const std::string name = context.arguments.Text("NAME");
  std::string wanted;
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const Preset preset, FindPreset(name));
    wanted = preset.name;
  }
  std::vector<ordered_json> models;
  for (const Family& family : Families()) {
    for (const Preset& preset : family.presets) {
      if (wanted.empty() || preset.name == wanted) models.push_back(Describe(preset, family));
    }
  }
  Output& output = context.output;
  if (output.format() == Format::kJsonLines) {
    for (const ordered_json& model : models) output.Line(model.dump());
  } else if (output.format() == Format::kJson) {
    output.Line((wanted.empty() ? ordered_json(models) : models[0]).dump(2));
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
          .summary = "lists the models that a spec can name as preset, or describes one",
          .positionals = {{"NAME", "a model of the list, or an alias", false}},
          .options = {},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard models", "trainyard models llama3-8b -o json"},
          .run = Run};
}

}  // namespace trainyard::cli
