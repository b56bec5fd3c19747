#include "train/hf/peft_names.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/hf/field_json.h"
#include "models/program/low_rank.h"
#include "train/hf/adapted_rows.h"

namespace trainyard {
namespace {

constexpr char kOutermost[] = "down_proj";  // Of the parameters of a module with experts.

// The narrow matrices of one PeftExperts, of all its experts in their order.
struct ExpertMatrices {
  std::map<int64_t, const TrainedParameter*> down, up;
};

// Names a tensor that `transformers` has in another form, so that PEFT has no name for it.
absl::Status NoName(absl::string_view parameter) {
  return absl::InvalidArgumentError(
      absl::StrCat(parameter, ": PEFT has no name for an adapter of it, because `transformers` ",
                   "keeps it in another form"));
}

// The matrices a of all experts, one after another: [experts rank, in].
HfLayout DownOfExperts(const std::string& tensor, const ExpertMatrices& matrices) {
  HfLayout layout{.tensor = tensor, .shape = {}, .parameters = {}};
  for (const auto& [expert, trained] : matrices.down) {
    layout.parameters.push_back(
        {.name = trained->name, .shape = trained->shape, .tensor = tensor, .index = expert});
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
  for (const auto& [expert, trained] : matrices.up) {
    layout.parameters.push_back({.name = trained->name,
                                 .shape = trained->shape,
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
bool IsComplete(const std::map<int64_t, const TrainedParameter*>& experts) {
  return !experts.empty() && experts.rbegin()->first == int64_t(experts.size()) - 1;
}

// Adds the tensors of experts. PEFT wraps a module once for each of its parameters that has an
// adapter, in the order in which the module declares them: down_proj last, so outermost.
absl::Status AddExperts(const std::map<std::string, ExpertMatrices>& by_target,
                        const PeftNames& names, PeftTensors& adapter) {
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
    adapter.parameters.insert(of.name());
    const bool inner = wraps[of.module] > 1 && of.parameter != kOutermost;
    const std::string layer = absl::StrCat(kPeftPrefix, of.module, inner ? ".base_layer" : "");
    adapter.tensors.push_back(DownOfExperts(layer + kLowRankDown, matrices));
    adapter.tensors.push_back(UpOfExperts(layer + kLowRankUp, matrices, of.matrices));
  }
  return absl::OkStatus();
}

}  // namespace

PeftNames::PeftNames(const ModelConfig& model, const HfTable& table)
    : in_memory_(table.in_memory),
      embedding_(table.embedding),
      has_experts_(FactsOf(model).experts.has_value()) {
  tied_ = FindValue(model, "tied") == FieldValue(true);
  const std::map<std::string, AdaptedRows> of_experts = AdaptedRowsOfExperts(model);
  for (HfLayout& layout : HfLayoutsOf(model, table)) {
    const bool whole = layout.parameters.size() == 1 && !layout.parameters.front().index;
    for (const HfParameter& parameter : layout.parameters) {
      layouts_.emplace(parameter.name, whole ? layout : HfLayout());
      const auto rows = of_experts.find(parameter.name);
      if (rows == of_experts.end()) continue;
      const std::string target = TargetOf(rows->second.layer), name = InMemory(target);
      const size_t dot = name.rfind('.');
      experts_[target] = {.module = name.substr(0, dot),
                          .parameter = name.substr(dot + 1),
                          .matrices = parameter.parts};
    }
  }
}

std::string PeftNames::InMemory(const std::string& name) const {
  if (in_memory_.from == nullptr) return name;
  return absl::StrReplaceAll(name, {{in_memory_.from, in_memory_.to}});
}

absl::StatusOr<HfLayout> PeftNames::Find(const std::string& parameter) const {
  const auto found = layouts_.find(parameter);
  if (found == layouts_.end() || found->second.tensor.empty()) return NoName(parameter);
  HfLayout layout = found->second;
  layout.tensor = InMemory(layout.tensor);
  return layout;
}

absl::StatusOr<HfLayout> PeftNames::OfAdapter(const std::string& parameter) const {
  ASSIGN_OR_RETURN(HfLayout weight, Find(absl::StrCat(AdaptedModuleOf(parameter), ".weight")));
  const std::string name(ModuleOf(weight.tensor));
  if (absl::EndsWith(name, ".out_proj")) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": PEFT refuses adapters of the output of Mamba; PEFT has names for ",
                     "adapter.lora.targets: ['*.in_proj', '*.q_proj', '*.v_proj']"));
  }
  // PEFT takes these names for those of the experts, whatever stands before them.
  for (const char* of_experts : {".gate_proj", ".up_proj", ".down_proj"}) {
    if (!has_experts_ || !absl::EndsWith(name, of_experts)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": PEFT would give this adapter to the experts; PEFT has names for ",
                     "adapter.lora.targets: ['*.self_attn.*']"));
  }
  return weight;
}

absl::StatusOr<PeftExperts> PeftNames::OfExperts(const std::string& target) const {
  const auto found = experts_.find(target);
  if (found == experts_.end()) return NoName(target);
  return found->second;
}

absl::StatusOr<HfLayout> PeftNames::OfModule(const std::string& parameter) const {
  ASSIGN_OR_RETURN(HfLayout layout, Find(parameter));
  if (layout.tensor == embedding_ && tied_) {
    return absl::InvalidArgumentError(
        absl::StrCat(parameter, ": PEFT would train a copy of the embedding, and leave the head ",
                     "that is tied to it as it was"));
  }
  return layout;
}

absl::Status PeftNames::Check(const ParameterSpec& spec) const {
  if (spec.stacked) return OfExperts(TargetOf(AdaptedModuleOf(spec.name))).status();
  return IsLowRank(spec.name) ? OfAdapter(spec.name).status() : OfModule(spec.name).status();
}

absl::StatusOr<PeftTensors> PeftNames::Place(const std::vector<TrainedParameter>& trained) const {
  PeftTensors adapter;
  std::map<std::string, ExpertMatrices> experts;  // By target.
  for (const TrainedParameter& parameter : trained) {
    const absl::string_view layer = AdaptedModuleOf(parameter.name);
    if (int64_t expert = 0; absl::SimpleAtoi(ExpertPartOf(layer), &expert)) {
      ExpertMatrices& matrices = experts[TargetOf(layer)];
      const bool is_down = absl::EndsWith(parameter.name, kLowRankDown);
      (is_down ? matrices.down : matrices.up)[expert] = &parameter;
      continue;
    }
    if (!IsLowRank(parameter.name)) {
      ASSIGN_OR_RETURN(HfLayout module, OfModule(parameter.name));
      adapter.saved.insert(module.tensor.substr(0, module.tensor.rfind('.')));
      module.tensor = kPeftPrefix + module.tensor;
      adapter.tensors.push_back(std::move(module));
      continue;
    }
    ASSIGN_OR_RETURN(const HfLayout weight, OfAdapter(parameter.name));
    const std::string name(ModuleOf(weight.tensor));
    adapter.targets.insert(name);
    adapter.transposed |= weight.parameters.front().transposed;
    const absl::string_view own = absl::string_view(parameter.name).substr(layer.size());
    HfLayout layout;
    layout.tensor = absl::StrCat(kPeftPrefix, name, own == kMagnitudeOffset ? kPeftMagnitude : own);
    for (int i = 0; i < parameter.shape.rank(); ++i) layout.shape.push_back(parameter.shape[i]);
    layout.parameters.push_back(
        {.name = parameter.name, .shape = parameter.shape, .tensor = layout.tensor});
    adapter.tensors.push_back(std::move(layout));
  }
  RETURN_IF_ERROR(AddExperts(experts, *this, adapter));
  return adapter;
}

}  // namespace trainyard
