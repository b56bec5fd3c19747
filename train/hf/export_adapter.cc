#include "train/hf/export_adapter.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/field_json.h"
#include "models/program/amax_history.h"
#include "models/program/low_rank.h"
#include "train/hf/carried_files.h"
#include "train/hf/pending_directory.h"
#include "train/hf/tensor_writer.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kPrefix[] = "base_model.model.";  // What PEFT wraps a model in.
constexpr char kPeftMagnitude[] = ".lora_magnitude_vector";

// What a PEFT directory says.
struct Adapter {
  std::vector<ExportTensor> tensors;
  std::set<std::string> targets, saved;  // Names of modules in the directory of the base.
  bool transposed = false;               // Layers of the base have [in, out] matrices.
};

// Names a tensor that `transformers` has in another form, so that PEFT has no name for it.
absl::Status NoName(absl::string_view parameter) {
  return absl::InvalidArgumentError(
      absl::StrCat(parameter, ": PEFT has no name for an adapter of it, because `transformers` ",
                   "keeps it in another form; --merge writes the whole model"));
}

// Where PEFT's directories have what a job with an adapter trains. Errors begin with a name.
class PeftNames {
 public:
  PeftNames(const ModelConfig& model, const HfTable& table)
      : embedding_(table.embedding), has_experts_(FactsOf(model).experts.has_value()) {
    const std::optional<FieldValue> tied = FindValue(model, "tied");
    tied_ = tied && !IsZero(*tied);
    for (HfLayout& layout : HfLayoutsOf(model, table)) {
      const bool whole = layout.parameters.size() == 1 && !layout.parameters.front().index;
      for (const HfParameter& parameter : layout.parameters) {
        layouts_.emplace(parameter.name, whole ? layout : HfLayout());
      }
    }
  }

  // Returns the layout of the weight beside which an adapter has the parameter.
  absl::StatusOr<HfLayout> OfAdapter(const std::string& parameter) const {
    ASSIGN_OR_RETURN(HfLayout weight, Find(absl::StrCat(AdaptedModuleOf(parameter), ".weight")));
    const std::string name(ModuleOf(weight.tensor));
    // PEFT takes these names for those of the experts, whatever stands before them.
    for (const char* of_experts : {".gate_proj", ".up_proj", ".down_proj"}) {
      if (!has_experts_ || !absl::EndsWith(name, of_experts)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": PEFT would give this adapter to the experts; --merge writes the whole model, ",
          "and PEFT has names for adapter.lora.targets: ['*.self_attn.*']"));
    }
    return weight;
  }

  absl::StatusOr<HfLayout> OfModule(const std::string& parameter) const {
    ASSIGN_OR_RETURN(HfLayout layout, Find(parameter));
    if (layout.tensor == embedding_ && tied_) {
      return absl::InvalidArgumentError(
          absl::StrCat(parameter, ": PEFT would train a copy of the embedding, and leave the head ",
                       "that is tied to it as it was; --merge writes the whole model"));
    }
    return layout;
  }

 private:
  absl::StatusOr<HfLayout> Find(const std::string& parameter) const {
    // `transformers` reads "backbone" from the file, and calls it "model" in memory, where PEFT
    // looks for names.
    if (absl::StartsWith(embedding_, "backbone.")) return NoName(parameter);
    const auto found = layouts_.find(parameter);
    if (found == layouts_.end() || found->second.tensor.empty()) return NoName(parameter);
    return found->second;
  }

  const std::string embedding_;
  const bool has_experts_;
  bool tied_ = false;
  std::map<std::string, HfLayout> layouts_;  // By parameter. Without a name: not a tensor alone.
};

absl::StatusOr<Adapter> ReadAdapter(const Checkpoint& checkpoint, const HfTable& table,
                                    std::optional<HfDType> dtype) {
  const PeftNames names(checkpoint.state().model, table);
  Adapter adapter;
  const auto tensor_of = [&](const StoredTensor& stored) -> absl::StatusOr<HfLayout> {
    if (!IsLowRank(stored.name)) {
      ASSIGN_OR_RETURN(HfLayout module, names.OfModule(stored.name));
      adapter.saved.insert(module.tensor.substr(0, module.tensor.rfind('.')));
      return module;
    }
    ASSIGN_OR_RETURN(const HfLayout weight, names.OfAdapter(stored.name));
    const std::string name(ModuleOf(weight.tensor));
    adapter.targets.insert(name);
    adapter.transposed |= weight.parameters.front().transposed;
    const absl::string_view own =
        absl::string_view(stored.name).substr(AdaptedModuleOf(stored.name).size());
    HfLayout layout;
    layout.tensor = absl::StrCat(name, own == kMagnitudeOffset ? kPeftMagnitude : own);
    for (int i = 0; i < stored.shape.rank(); ++i) layout.shape.push_back(stored.shape[i]);
    layout.parameters.push_back(
        {.name = stored.name, .shape = stored.shape, .tensor = layout.tensor});
    return layout;
  };
  for (const StoredTensor& stored : checkpoint.manifest().tensors) {
    if (stored.kind != TensorKind::kParameter || IsNameOfHistory(stored.name)) continue;
    absl::StatusOr<HfLayout> layout = tensor_of(stored);
    if (!layout.ok()) {
      return absl::Status(layout.status().code(),
                          absl::StrCat(checkpoint.path(), ": ", layout.status().message()));
    }
    layout->tensor = kPrefix + layout->tensor;
    adapter.tensors.push_back(
        {.layout = *std::move(layout), .dtype = dtype.value_or(HfDTypeOf(stored.dtype))});
  }
  return adapter;
}

OrderedJson ConfigOf(const LoraNumbers& numbers, const Adapter& adapter, const std::string& base) {
  OrderedJson json = {{"peft_type", "LORA"},
                      {"task_type", "CAUSAL_LM"},
                      {"base_model_name_or_path", nullptr},
                      {"r", numbers.rank},
                      {"lora_alpha", numbers.alpha},
                      {"use_rslora", numbers.rslora},
                      {"use_dora", numbers.dora},
                      {"target_modules", adapter.targets},
                      {"modules_to_save", nullptr},
                      {"fan_in_fan_out", adapter.transposed},
                      {"lora_dropout", 0.0},
                      {"bias", "none"},
                      {"init_lora_weights", true},
                      {"inference_mode", true}};
  if (!base.empty()) json["base_model_name_or_path"] = base;
  if (!adapter.saved.empty()) json["modules_to_save"] = adapter.saved;
  return json;
}

}  // namespace

absl::Status CheckPeftLoads(const ModelConfig& model, const std::vector<ParameterSpec>& trained) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(model));
  const PeftNames names(model, *table);
  for (const ParameterSpec& spec : trained) {
    RETURN_IF_ERROR(
        (IsLowRank(spec.name) ? names.OfAdapter(spec.name) : names.OfModule(spec.name)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Exported> ExportAdapter(const Checkpoint& checkpoint, const ExportOptions& options,
                                       Storage& storage) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(checkpoint.state().model));
  ASSIGN_OR_RETURN(const std::optional<HfOrigin> origin, FindOrigin(checkpoint.path()));
  ASSIGN_OR_RETURN(const Adapter adapter, ReadAdapter(checkpoint, *table, options.dtype));
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(options.to, storage));
  Exported exported;
  exported.files = {kAdapterWeightsName};
  exported.dtype = adapter.tensors.front().dtype;
  for (const ExportTensor& tensor : adapter.tensors) exported.size_bytes += tensor.entry().bytes();
  RETURN_IF_ERROR(
      TensorWriter(checkpoint, storage)
          .WriteFile(absl::StrCat(pending.path(), "/", kAdapterWeightsName), adapter.tensors));
  RETURN_IF_ERROR(WriteFile(
      absl::StrCat(pending.path(), "/", kAdapterConfigName),
      JsonText(ConfigOf(*checkpoint.state().adapter, adapter, options.base), 2) + "\n", storage));
  if (origin) {
    exported.origin = origin->path;
    ASSIGN_OR_RETURN(exported.carried, WriteCarried(*origin, pending.path(), storage));
  }
  exported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return exported;
}

}  // namespace trainyard
