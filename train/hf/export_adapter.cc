#include "train/hf/export_adapter.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/field_json.h"
#include "models/program/amax_history.h"
#include "models/program/low_rank.h"
#include "train/hf/adapted_rows.h"
#include "train/hf/carried_files.h"
#include "train/hf/pending_directory.h"
#include "train/hf/tensor_writer.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kPrefix[] = "base_model.model.";  // What PEFT wraps a model in.
constexpr char kOutermost[] = "down_proj";       // Of the parameters of a module with experts.
constexpr char kPeftMagnitude[] = ".lora_magnitude_vector";

// What a PEFT directory says.
struct Adapter {
  std::vector<ExportTensor> tensors;
  std::set<std::string> targets, saved;  // Names of modules in the directory of the base.
  std::set<std::string> parameters;      // Adapted experts, by their names in `transformers`.
  bool transposed = false;               // Layers of the base have [in, out] matrices.
};

// The parameter of `transformers` that has one matrix of all experts of a layer.
struct PeftExperts {
  std::string module;     // "model.layers.0.mlp.experts"
  std::string parameter;  // "gate_up_proj"
  int64_t matrices = 1;   // The rows of so many matrices of an expert alternate in the parameter.
};

// The narrow matrices of one PeftExperts, of all its experts in their order.
struct ExpertMatrices {
  std::map<int64_t, const StoredTensor*> down, up;
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
    const std::map<std::string, AdaptedRows> of_experts = AdaptedRowsOfExperts(model);
    for (HfLayout& layout : HfLayoutsOf(model, table)) {
      const bool whole = layout.parameters.size() == 1 && !layout.parameters.front().index;
      for (const HfParameter& parameter : layout.parameters) {
        layouts_.emplace(parameter.name, whole ? layout : HfLayout());
        const auto rows = of_experts.find(parameter.name);
        if (rows == of_experts.end()) continue;
        const std::string target = TargetOf(rows->second.layer);
        std::string name = target;
        if (table.in_memory.from != nullptr) {
          name = absl::StrReplaceAll(target, {{table.in_memory.from, table.in_memory.to}});
        }
        const size_t dot = name.rfind('.');
        experts_[target] = {.module = name.substr(0, dot),
                            .parameter = name.substr(dot + 1),
                            .matrices = parameter.parts};
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

  // Returns where PEFT has the adapter of experts that is called `target`.
  absl::StatusOr<PeftExperts> OfExperts(const std::string& target) const {
    const auto found = experts_.find(target);
    if (found == experts_.end() || HasOtherNamesInMemory()) return NoName(target);
    return found->second;
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
  // `transformers` reads "backbone" from the file, and calls it "model" in memory, where PEFT
  // looks for names.
  bool HasOtherNamesInMemory() const { return absl::StartsWith(embedding_, "backbone."); }

  absl::StatusOr<HfLayout> Find(const std::string& parameter) const {
    if (HasOtherNamesInMemory()) return NoName(parameter);
    const auto found = layouts_.find(parameter);
    if (found == layouts_.end() || found->second.tensor.empty()) return NoName(parameter);
    return found->second;
  }

  const std::string embedding_;
  const bool has_experts_;
  bool tied_ = false;
  std::map<std::string, HfLayout> layouts_;     // By parameter. Without a name: not a tensor alone.
  std::map<std::string, PeftExperts> experts_;  // By target.
};

// The matrices a of all experts, one after another: [experts rank, in].
HfLayout DownOfExperts(const std::string& tensor, const ExpertMatrices& matrices) {
  HfLayout layout{.tensor = tensor, .shape = {}, .parameters = {}};
  for (const auto& [expert, stored] : matrices.down) {
    layout.parameters.push_back(
        {.name = stored->name, .shape = stored->shape, .tensor = tensor, .index = expert});
  }
  const Shape& shape = layout.parameters.front().shape;
  layout.shape = {int64_t(matrices.down.size()) * shape[0], shape[1]};
  return layout;
}

// The matrices b of all experts: [out, rank experts]. Column 0 of all experts comes first, then
// column 1 of all experts.
HfLayout UpOfExperts(const std::string& tensor, const ExpertMatrices& matrices,
                     int64_t alternating) {
  HfLayout layout{.tensor = tensor, .shape = {}, .parameters = {}};
  const int64_t experts = int64_t(matrices.up.size());
  for (const auto& [expert, stored] : matrices.up) {
    layout.parameters.push_back({.name = stored->name,
                                 .shape = stored->shape,
                                 .tensor = tensor,
                                 .parts = experts,
                                 .part = expert,
                                 .by_elements = true,
                                 .matrices = alternating});
  }
  const Shape& shape = layout.parameters.front().shape;
  layout.shape = {shape[0], shape[1] * experts};
  return layout;
}

// Whether the numbers are 0, 1, 2 and so on.
bool IsComplete(const std::map<int64_t, const StoredTensor*>& experts) {
  return !experts.empty() && experts.rbegin()->first == int64_t(experts.size()) - 1;
}

// Adds the tensors of experts. PEFT wraps a module once for each of its parameters that has an
// adapter, in the order in which the module declares them: down_proj last, so outermost.
absl::Status AddExperts(const std::map<std::string, ExpertMatrices>& by_target,
                        const PeftNames& names, std::optional<HfDType> dtype, Adapter& adapter) {
  std::map<std::string, int> wraps;  // How many of a module's parameters have an adapter.
  for (const auto& [target, matrices] : by_target) {
    ASSIGN_OR_RETURN(const PeftExperts of, names.OfExperts(target));
    if (!IsComplete(matrices.down) || !IsComplete(matrices.up)) {
      return absl::InvalidArgumentError(absl::StrCat(target, ": not all experts have an adapter"));
    }
    ++wraps[of.module];
  }
  for (const auto& [target, matrices] : by_target) {
    ASSIGN_OR_RETURN(const PeftExperts of, names.OfExperts(target));
    adapter.parameters.insert(absl::StrCat(of.module, ".", of.parameter));
    const bool inner = wraps[of.module] > 1 && of.parameter != kOutermost;
    const std::string layer = absl::StrCat(of.module, inner ? ".base_layer" : "");
    const HfDType stored = HfDTypeOf(matrices.down.begin()->second->dtype);
    for (HfLayout& layout : std::vector<HfLayout>{
             DownOfExperts(absl::StrCat(kPrefix, layer, kLowRankDown), matrices),
             UpOfExperts(absl::StrCat(kPrefix, layer, kLowRankUp), matrices, of.matrices)}) {
      adapter.tensors.push_back({.layout = std::move(layout), .dtype = dtype.value_or(stored)});
    }
  }
  return absl::OkStatus();
}

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
  const auto failed = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(checkpoint.path(), ": ", status.message()));
  };
  std::map<std::string, ExpertMatrices> experts;  // By target.
  for (const StoredTensor& stored : checkpoint.manifest().tensors) {
    if (stored.kind != TensorKind::kParameter || IsNameOfHistory(stored.name)) continue;
    const absl::string_view layer = AdaptedModuleOf(stored.name);
    if (int64_t expert = 0; absl::SimpleAtoi(ExpertPartOf(layer), &expert)) {
      ExpertMatrices& matrices = experts[TargetOf(layer)];
      const bool is_down = absl::EndsWith(stored.name, kLowRankDown);
      (is_down ? matrices.down : matrices.up)[expert] = &stored;
      continue;
    }
    absl::StatusOr<HfLayout> layout = tensor_of(stored);
    if (!layout.ok()) return failed(layout.status());
    layout->tensor = kPrefix + layout->tensor;
    adapter.tensors.push_back(
        {.layout = *std::move(layout), .dtype = dtype.value_or(HfDTypeOf(stored.dtype))});
  }
  const absl::Status added = AddExperts(experts, names, dtype, adapter);
  if (!added.ok()) return failed(added);
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
  if (!adapter.parameters.empty()) json["target_parameters"] = adapter.parameters;
  return json;
}

}  // namespace

absl::Status CheckPeftLoads(const ModelConfig& model, const std::vector<ParameterSpec>& trained) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(model));
  const PeftNames names(model, *table);
  for (const ParameterSpec& spec : trained) {
    if (spec.stacked) {
      RETURN_IF_ERROR(names.OfExperts(TargetOf(AdaptedModuleOf(spec.name))).status());
      continue;
    }
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
