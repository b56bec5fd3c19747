#include "train/hf/peft_config.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/declared.h"
#include "common/json.h"
#include "common/python_json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/violations.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Keys that change nothing in what the adapter computes or how it is trained further. What begins
// with "only" means something beside another key alone, whose other values are refused.
constexpr const char* kMeaningless[] = {
    "auto_mapping",         // Which class of Python loads the base.
    "corda_config",         // Only with init_lora_weights "corda".
    "ensure_weight_tying",  // Only for a tied embedding or head, which are refused as modules.
    "eva_config",           // How the first values were chosen.
    "inference_mode",       // Whether PEFT trains the adapter that it loads.
    "layers_pattern",       // How the numbers of layers_to_transform are found in names.
    "loftq_config",         // Only with init_lora_weights "loftq".
    "lora_ga_config",       // Only with init_lora_weights "lora_ga".
    "megatron_core",        // Only with megatron_config.
    "peft_version",         //
    "qalora_group_size",    // Only with use_qalora.
    "revision",             // Of the base on the Hugging Face Hub.
    "runtime_config"};      // Never meant in a file.

// Keys that must be false, null or empty, and what else there is to say. So must each key that is
// not known: it may change what the adapter computes.
struct Refused {
  const char* key;
  const char* note;
};
constexpr Refused kRefused[] = {
    {"alora_invocation_tokens", "an adapter that only some tokens use has no form here (aLoRA)"},
    {"arrow_config", "adapters that a router chooses have no form here (Arrow)"},
    {"kasa_config", "KaSA cuts the weights of the base, which the directory lacks"},
    {"layer_replication", "the adapted model has other layers than its base"},
    {"lora_bias",
     "matrices b with a bias have no form here; model.merge_and_unload() of PEFT "
     "writes the whole model"},
    {"megatron_config", "a model of Megatron has other names"},
    {"monteclora_config", "adapters that are drawn at each step have no form here"},
    {"trainable_token_indices",
     "rows of an embedding have no form here; model.merge_and_unload() "
     "of PEFT writes the whole model"},
    {"use_bdlora", "block-diagonal adapters have no form here"},
    {"use_qalora", "adapters of pooled inputs have no form here (QA-LoRA)"},
    {"velora_config", "training with compressed activations has no form here (VeLoRA)"}};

// Of the keys of rank_pattern, or of alpha_pattern, in all. An expression that is read takes up to
// a thousand times its bytes.
constexpr size_t kMostExpressionBytes = 256 << 10;

// Ways to choose first values that leave the base as it is.
constexpr const char* kPlainStarts[] = {"gaussian", "orthogonal", "eva"};
// Ways after which PEFT can write the adapter for the base as it was.
constexpr const char* kConvertible[] = {"pissa", "olora", "corda", "lora_ga"};

bool SaysNothing(const Json& json) {
  return json.is_null() || json == false || json == "" ||
         ((json.is_array() || json.is_object()) && json.empty());
}

std::string ShownJson(const Json& json) {
  const std::string text = DumpPythonJson(json, -1);
  return VisibleUtf8(text.size() > kShownBytes ? absl::StrCat(CutUtf8(text, kShownBytes), " ...")
                                               : text);
}

std::string Visible(const std::string& key) { return VisibleUtf8(CutUtf8(key, kShownBytes)); }

// Whether the name is one of the ends, or ends in "." and one of them.
bool EndsInOne(absl::string_view name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) {
    return name == end || absl::EndsWith(name, absl::StrCat(".", end));
  });
}

// The first number that is a part of the name: "model.layers.3.mlp" -> 3.
std::optional<int64_t> LayerOf(absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(name, '.')) {
    int64_t number = 0;
    if (absl::SimpleAtoi(part, &number)) return number;
  }
  return std::nullopt;
}

class ConfigReader {
 public:
  // `text` is that of `json`.
  ConfigReader(const Json& json, absl::string_view text) : json_(json), text_(text) {}

  absl::StatusOr<PeftConfig> Read() {
    ReadKind();
    ReadNumbers();
    ReadRanksAndAlphas();
    ReadStart();
    ReadNames();
    ReadLayers();
    if (const Json* base = Take("base_model_name_or_path"); base != nullptr) {
      if (base->is_string()) {
        config_.base = base->get<std::string>();
      } else {
        Refuse("base_model_name_or_path", "text or null", *base);
      }
    }
    CheckOthers();
    RETURN_IF_ERROR(violations_.ToStatus());
    return config_;
  }

 private:
  // Returns the value of a key, or null if there is none or it is null. Marks the key as read.
  const Json* Take(const char* key) {
    read_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  void Refuse(absl::string_view key, absl::string_view wanted, const Json& found,
              absl::string_view note = "") {
    violations_.Add({.field = std::string(key),
                     .wanted = std::string(wanted),
                     .found = ShownJson(found),
                     .note = std::string(note)});
  }

  void ReadKind() {
    const Json* const type = Take("peft_type");
    if (type == nullptr || *type != "LORA") {
      Refuse("peft_type", "\"LORA\"", type == nullptr ? Json() : *type,
             "other kinds of adapters have no form here; model.merge_and_unload() of PEFT writes "
             "the whole model, where the kind has it");
    }
    const Json* const task = Take("task_type");
    if (task != nullptr && *task != "CAUSAL_LM") {
      Refuse("task_type", "\"CAUSAL_LM\" or null", *task, "models here predict the next token");
    }
    const Json* const bias = Take("bias");
    if (bias != nullptr && *bias != "none") {
      Refuse("bias", "\"none\"", *bias,
             "biases of the base that were trained have no form here; model.merge_and_unload() of "
             "PEFT writes the whole model");
    }
  }

  bool ReadBool(const char* key) {
    const Json* const value = Take(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      Refuse(key, "true or false", *value);
      return false;
    }
    return value->get<bool>();
  }

  void ReadReal(const char* key, const char* field, double& number) {
    const Json* const value = Take(key);
    if (value == nullptr) return;
    const Interval& legal = *FindDeclared(field)->real;
    if (!value->is_number()) return Refuse(key, "a number", *value);
    number = value->get<double>();
    violations_.Check(key, number, legal);
  }

  void ReadNumbers() {
    LoraNumbers& numbers = config_.numbers;
    numbers = {.rank = Standard<int64_t>("adapter.lora.rank"),
               .alpha = Standard<double>("adapter.lora.alpha")};
    if (const Json* const rank = Take("r"); rank != nullptr) {
      if (!ReadInteger(*rank, numbers.rank)) {
        Refuse("r", "a whole number", *rank);
      } else {
        violations_.Check("r", numbers.rank, *DeclaredAt("adapter.lora.rank").whole);
      }
    }
    ReadReal("lora_alpha", "adapter.lora.alpha", numbers.alpha);
    ReadReal("lora_dropout", "adapter.lora.dropout", config_.dropout);
    numbers.rslora = ReadBool("use_rslora");
    numbers.dora = ReadBool("use_dora");
    config_.transposed = ReadBool("fan_in_fan_out");
  }

  // Ranks or alphas of some layers, where others have `otherwise`. `read` takes a value. PEFT takes
  // the first key that matches a layer, so their order counts.
  template <typename T, typename Read>
  void ReadPatterns(const char* key, T otherwise, std::vector<std::pair<PeftPattern, T>>& patterns,
                    Read&& read) {
    const Json* const object = Take(key);
    if (object == nullptr) return;
    if (!object->is_object()) return Refuse(key, "an object", *object);
    if (object->empty()) return;
    const auto in_order = ParseJson<nlohmann::ordered_json>(text_);
    if (in_order.is_discarded()) {
      return Refuse(key, "a file of which all numbers are finite", *object);
    }
    struct Row {
      std::string field, expression;
      T number = {};
    };
    std::vector<Row> rows;
    for (const auto& [layers, value] : in_order.at(key).items()) {
      Row row = {absl::StrCat(key, ".", Visible(layers)), layers};
      if (read(row.field, Json(value), row.number)) rows.push_back(std::move(row));
    }
    // The last ones change nothing if they say what holds without them, so they need not be read.
    while (!rows.empty() && rows.back().number == otherwise) rows.pop_back();
    size_t bytes = 0;
    for (const Row& row : rows) bytes += row.expression.size();
    if (bytes > kMostExpressionBytes) {
      return Refuse(key, absl::StrCat("names of at most ", kMostExpressionBytes, " bytes in all"),
                    bytes);
    }
    for (const Row& row : rows) {
      const std::optional<PeftPattern> pattern = PeftPattern::OfEnds(row.expression);
      if (pattern) {
        patterns.push_back({*pattern, row.number});
        continue;
      }
      Refuse(key, "a regular expression that is read here", Json(row.expression),
             "docs/fine_tuning.md says which ones are not; list the ends of the layers' names "
             "instead");
    }
  }

  void ReadRanksAndAlphas() {
    const auto read_rank = [&](const std::string& field, const Json& value, int64_t& rank) {
      if (ReadInteger(value, rank)) {
        return violations_.Check(field, rank, *DeclaredAt("adapter.lora.rank").whole);
      }
      Refuse(field, "a whole number", value);
      return false;
    };
    const auto read_alpha = [&](const std::string& field, const Json& value, double& alpha) {
      if (value.is_number()) {
        alpha = value.get<double>();
        return violations_.Check(field, alpha, *DeclaredAt("adapter.lora.alpha").real);
      }
      Refuse(field, "a number", value);
      return false;
    };
    ReadPatterns("rank_pattern", config_.numbers.rank, config_.ranks, read_rank);
    ReadPatterns("alpha_pattern", config_.numbers.alpha, config_.alphas, read_alpha);
  }

  void ReadStart() {
    const Json* const start = Take("init_lora_weights");
    if (start == nullptr || start->is_boolean()) return;
    const auto is = [&](const char* name) {
      return start->is_string() && absl::StartsWith(start->get<std::string>(), name);
    };
    for (const char* plain : kPlainStarts) {
      if (*start == plain) return;
    }
    const bool convertible = std::any_of(std::begin(kConvertible), std::end(kConvertible), is);
    Refuse("init_lora_weights", "true, false, \"gaussian\", \"orthogonal\" or \"eva\"", *start,
           convertible ? "this start changes the base; save_pretrained(..., "
                         "path_initial_model_for_weight_conversion=...) of PEFT writes the adapter "
                         "for the base as it was"
                       : "this start may change the base, or how the adapter is trained; "
                         "model.merge_and_unload() of PEFT writes the whole model");
  }

  // Names, or a regular expression. PEFT replaces "all-linear" by the names of the layers that it
  // chooses.
  PeftModules ReadModules(const char* key) {
    const auto found = json_.find(key);
    PeftModules modules;
    if (found == json_.end() || !found->is_string()) {
      modules.ends = ReadEnds(key, "a list of names, or a regular expression");
      return modules;
    }
    Take(key);
    const std::string expression = found->get<std::string>();
    if (expression.empty()) return modules;
    modules.expression = PeftPattern::OfWholes(expression);
    modules.unread = !modules.expression || absl::EqualsIgnoreCase(expression, "all-linear");
    return modules;
  }

  std::vector<std::string> ReadEnds(const char* key, const char* wanted = "a list of names") {
    const Json* const value = Take(key);
    std::vector<std::string> ends;
    if (value == nullptr) return ends;
    const bool texts =
        value->is_array() &&
        std::all_of(value->begin(), value->end(), [](auto& name) { return name.is_string(); });
    if (!texts) {
      Refuse(key, wanted, *value);
      return ends;
    }
    for (const Json& name : *value) ends.push_back(name.get<std::string>());
    return ends;
  }

  void ReadNames() {
    config_.targets = ReadModules("target_modules");
    config_.excluded = ReadModules("exclude_modules");
    config_.parameters = ReadEnds("target_parameters");
    config_.saved = ReadEnds("modules_to_save");
    if (config_.numbers.dora && !config_.parameters.empty()) {
      Refuse("use_dora", "false beside target_parameters", true);
    }
    if (config_.dropout > 0 && !config_.parameters.empty()) {
      Refuse("lora_dropout", "0 beside target_parameters", config_.dropout);
    }
  }

  void ReadLayers() {
    const Json* const value = Take("layers_to_transform");
    if (value == nullptr || SaysNothing(*value)) return;
    std::set<int64_t> layers;
    for (const Json& number : value->is_array() ? *value : Json::array({*value})) {
      int64_t layer = 0;
      if (!ReadInteger(number, layer) || layer < 0) {
        return Refuse("layers_to_transform", "numbers of layers, from 0 on", *value);
      }
      layers.insert(layer);
    }
    config_.layers = std::move(layers);
  }

  void CheckOthers() {
    for (const auto& [key, value] : json_.items()) {
      if (read_.contains(key) || SaysNothing(value)) continue;
      const auto is = [key = absl::string_view(key)](const char* other) { return key == other; };
      if (std::any_of(std::begin(kMeaningless), std::end(kMeaningless), is)) continue;
      const auto known = std::find_if(std::begin(kRefused), std::end(kRefused),
                                      [&](const Refused& refused) { return is(refused.key); });
      Refuse(Visible(key), "no such key, or null", value,
             known == std::end(kRefused)
                 ? "a key that PEFT 0.21 does not know may change what the adapter computes"
                 : known->note);
    }
  }

  const Json& json_;
  const absl::string_view text_;
  PeftConfig config_;
  std::set<std::string> read_;
  Violations violations_;
};

}  // namespace

std::string ToJson(const PeftConfigJson& config) {
  nlohmann::ordered_json json = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", nullptr},
                                 {"r", config.numbers.rank},
                                 {"lora_alpha", config.numbers.alpha},
                                 {"use_rslora", config.numbers.rslora},
                                 {"use_dora", config.numbers.dora},
                                 {"target_modules", config.targets},
                                 {"modules_to_save", nullptr},
                                 {"fan_in_fan_out", config.transposed},
                                 {"lora_dropout", 0.0},
                                 {"bias", "none"},
                                 {"init_lora_weights", true},
                                 {"inference_mode", true}};
  if (!config.base.empty()) json["base_model_name_or_path"] = config.base;
  if (!config.saved.empty()) json["modules_to_save"] = config.saved;
  if (!config.parameters.empty()) json["target_parameters"] = config.parameters;
  return JsonText(json, 2) + "\n";
}

LoraNumbers PeftConfig::NumbersOf(absl::string_view name) const {
  LoraNumbers of_layer = numbers;
  const auto take = [&](const auto& patterns, auto& number) {
    const auto first = std::find_if(patterns.begin(), patterns.end(), [&](const auto& pattern) {
      return pattern.first.Matches(name);
    });
    if (first != patterns.end()) number = first->second;
  };
  take(ranks, of_layer.rank);
  take(alphas, of_layer.alpha);
  return of_layer;
}

bool PeftConfig::Targets(absl::string_view module) const {
  // An excluded module is left out, and so is what modules_to_save names, with all that is in it.
  if (excluded.expression ? excluded.expression->Matches(module)
                          : EndsInOne(module, excluded.ends)) {
    return false;
  }
  for (const std::string& name : saved) {
    if (absl::StrContains(absl::StrCat(".", module, "."), absl::StrCat(".", name, "."))) {
      return false;
    }
  }
  if (targets.expression) return targets.expression->Matches(module);
  if (std::count(targets.ends.begin(), targets.ends.end(), module) > 0) return true;
  if (!EndsInOne(module, targets.ends)) return false;
  const std::optional<int64_t> layer = LayerOf(module);
  return !layers || (layer && layers->contains(*layer));
}

bool PeftConfig::TargetsParameter(absl::string_view name) const {
  return EndsInOne(name, parameters);
}

bool PeftConfig::Saves(absl::string_view parameter) const {
  // The parameter's module, or one around it. PEFT compares ends without regard to dots.
  for (size_t dot = parameter.rfind('.'); dot != parameter.npos;
       dot = dot == 0 ? parameter.npos : parameter.rfind('.', dot - 1)) {
    const absl::string_view module = parameter.substr(0, dot);
    for (const std::string& name : saved) {
      if (absl::EndsWith(module, name)) return true;
    }
  }
  return false;
}

absl::StatusOr<PeftConfig> ParsePeftConfig(absl::string_view text) {
  absl::StatusOr<Json> json = ParsePythonJson(text);
  if (!json.ok()) return absl::DataLossError(json.status().message());
  if (!json->is_object()) {
    return absl::DataLossError("wanted a JSON object, found another value");
  }
  return ConfigReader(*json, text).Read();
}

}  // namespace trainyard
