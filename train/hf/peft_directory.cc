#include "train/hf/peft_directory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/canonical.h"
#include "common/files.h"
#include "common/half.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "models/arch/registry.h"
#include "models/hf/config.h"
#include "models/hf/finite.h"
#include "models/hf/model_directory.h"
#include "models/model.h"
#include "models/parallel/mesh.h"
#include "models/program/low_rank.h"
#include "train/hf/widen_rank.h"

namespace trainyard {
namespace {

constexpr uint64_t kMaxConfigBytes = 16 << 20;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// "lm_head" for "lm_head.weight".
std::string ModuleOfParameter(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Calls visit(spec) for each parameter that the model declares beside this adapter.
template <typename Visit>
void ForEachSpec(const ModelConfig& model, const LowRank& adapter, Visit&& visit) {
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(model), adapter)) {
    for (const ParameterSpec& spec : storage.parameters) visit(spec);
  }
}

LowRank OfAllLayers(int64_t rank) {
  return {.rank = rank, .adapts = [](absl::string_view) { return true; }};
}

// The dtype in which numbers of a file are kept. Absent: no numbers of a kind that adapters have.
std::optional<DType> KeptAs(HfDType stored) {
  switch (stored) {
    case HfDType::kF64:
      return DType::kF64;
    case HfDType::kF32:
    case HfDType::kF16:
      return DType::kF32;
    case HfDType::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

// The error for a directory without the file of weights. It names what is there instead, if any.
absl::Status NoWeights(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCanonical(path));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "adapter_model")) continue;  // Another program's.
    if (!absl::EndsWith(name, ".bin") && !absl::EndsWith(name, ".pt")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, "/", name, ": wanted ", kAdapterWeightsName, ", found a pickle file, which may run ",
        "any program while it is read; load the adapter with PEFT and write it with ",
        "save_pretrained(..., safe_serialization=True)"));
  }
  return absl::NotFoundError(absl::StrCat(path, ": wanted ", kAdapterWeightsName, " beside ",
                                          kAdapterConfigName, ", found no such file"));
}

}  // namespace

bool IsPeftDirectory(const std::string& path) {
  const auto has = [&](const char* name) { return Exists(absl::StrCat(path, "/", name)); };
  return has(kAdapterConfigName) && !has(kHfWeightsName) && !has(kHfIndexName);
}

absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& directory) {
  const Roots roots;
  ASSIGN_OR_RETURN(const std::string found, roots.FindDirectory(directory));
  const std::string path = absl::StrCat(found, "/", kAdapterConfigName);
  ASSIGN_OR_RETURN(const std::string text, ReadHfFile(path, kMaxConfigBytes, roots));
  absl::StatusOr<PeftConfig> config = ParsePeftConfig(text);
  if (config.ok()) return config;
  const char* const between = absl::IsInvalidArgument(config.status()) ? ":\n" : ": ";
  return absl::Status(config.status().code(),
                      absl::StrCat(path, between, config.status().message()));
}

absl::StatusOr<PeftDirectory> PeftDirectory::Open(const std::string& path, PeftConfig config,
                                                  const HfModel& base) {
  const Roots roots;
  ASSIGN_OR_RETURN(const std::string found, roots.FindDirectory(path));
  const std::string weights = absl::StrCat(found, "/", kAdapterWeightsName);
  if (!Exists(weights)) return NoWeights(found);
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(weights, roots));
  PeftDirectory directory(found, std::move(config), std::move(file));
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(base.config));
  const PeftNames names(base.config, *table);
  ASSIGN_OR_RETURN(const std::vector<TrainedParameter> trained, directory.FindTrained(base, names));
  ASSIGN_OR_RETURN(const PeftTensors placed, names.Place(trained));
  RETURN_IF_ERROR(directory.AddWeights(base, placed));
  RETURN_IF_ERROR(directory.CheckLoads(base, names, placed));
  for (const TrainedParameter& parameter : trained) directory.trained_.insert(parameter.name);
  return directory;
}

absl::Status PeftDirectory::Refuse(absl::string_view tensor, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(
      file_.path(), ": tensor ", VisibleUtf8(CutUtf8(tensor, kShownBytes)), ": ", what));
}

// The layers that have an adapter in the file, and the modules that are there as a whole. What a
// layer must have besides is found by the names of PeftNames::Place.
absl::StatusOr<std::vector<TrainedParameter>> PeftDirectory::FindTrained(const HfModel& base,
                                                                         const PeftNames& names) {
  const SafetensorsTensors& tensors = file_.tensors();
  const auto has_adapter = [&](absl::string_view module) {
    const std::string begin = absl::StrCat(kPeftPrefix, module, ".lora_");
    const auto first = tensors.lower_bound(begin);
    return first != tensors.end() && absl::StartsWith(first->first, begin);
  };
  std::map<std::string, LoraNumbers> by_name;  // As PEFT calls the layers.
  std::set<std::string> saved;
  const auto add = [&](const std::string& target, const std::string& name) {
    layers_[target] = by_name[name] = config_.NumbersOf(name);
  };
  absl::Status status, unnamed;  // The latter: PEFT has no names for layers of this family.
  const auto find = [&](const ParameterSpec& spec) {
    const std::string target = TargetOf(AdaptedModuleOf(spec.name));
    if (spec.stacked) {
      const auto experts = names.OfExperts(target);
      const bool named = experts.ok() && config_.TargetsParameter(experts->name());
      if (named && absl::EndsWith(spec.name, kLowRankDown)) add(target, experts->name());
      return;
    }
    const bool narrow = IsLowRank(spec.name);
    const auto layout = narrow ? names.OfAdapter(spec.name) : names.OfModule(spec.name);
    const std::string tensor = layout.ok() ? layout->tensor : spec.name;
    const std::string module = narrow && !layout.ok() ? target : std::string(ModuleOf(tensor));
    if (narrow && !layout.ok()) unnamed.Update(layout.status());
    const bool there = narrow ? has_adapter(module) : tensors.contains(kPeftPrefix + tensor);
    if (!there) return;
    if (!layout.ok()) {
      status.Update(Refuse(kPeftPrefix + tensor, layout.status().message()));
    } else if (narrow) {
      add(target, module);
    } else {
      saved.insert(ModuleOfParameter(spec.name));
    }
  };
  ForEachSpec(base.config, OfAllLayers(config_.numbers.rank), find);
  RETURN_IF_ERROR(status);
  if (layers_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": wanted adapters of layers of ", base.directory.path(), ", found none in ",
        tensors.size(), " tensors", tensors.empty() ? "" : "; the first is ",
        tensors.empty() ? "" : VisibleUtf8(CutUtf8(tensors.begin()->first, kShownBytes)),
        "; --base names the model that the adapter was trained beside", unnamed.ok() ? "" : "; ",
        unnamed.message()));
  }
  RETURN_IF_ERROR(JoinNumbers(by_name));
  std::set<int64_t> ranks;
  for (const auto& [target, numbers] : layers_) ranks.insert(numbers.rank);
  std::vector<TrainedParameter> trained;
  std::set<std::string> seen;  // Tied parameters are declared twice.
  for (const int64_t rank : ranks) {
    const auto adapts = [&](absl::string_view name) {
      const auto found = layers_.find(name);
      return found != layers_.end() && found->second.rank == rank;
    };
    const LowRank adapter{.rank = rank, .magnitudes = config_.numbers.dora, .adapts = adapts};
    for (const ParameterStorage& storage : DeclareParameters(*CreateModel(base.config), adapter)) {
      for (const ParameterBox& box : BoxesOf(storage, Mesh())) {
        const bool trains = IsLowRank(box.name) || saved.contains(ModuleOfParameter(box.name));
        if (trains && seen.insert(box.name).second) trained.push_back({box.name, box.global_shape});
      }
    }
  }
  return trained;
}

absl::Status PeftDirectory::JoinNumbers(const std::map<std::string, LoraNumbers>& layers) {
  const auto widest =
      std::max_element(layers.begin(), layers.end(),
                       [](const auto& a, const auto& b) { return a.second.rank < b.second.rank; });
  numbers_ = widest->second;
  for (const auto& [name, numbers] : layers) {
    int exponent = 0;
    if (std::frexp(numbers.scale() / numbers_.scale(), &exponent) == 0.5) continue;
    const char* const of = numbers.rslora ? "lora_alpha / sqrt(r)" : "lora_alpha / r";
    return absl::InvalidArgumentError(absl::StrCat(
        path_, "/", kAdapterConfigName, ":\nrank_pattern and alpha_pattern: wanted scales (", of,
        ") that differ by powers of two, since all layers have one scale here, which would round ",
        "other ones; found ", numbers_.scale(), " of ", widest->first, " and ", numbers.scale(),
        " of ", name, "; model.merge_and_unload() of PEFT writes the whole model"));
  }
  return absl::OkStatus();
}

absl::Status PeftDirectory::AddWeights(const HfModel& base, const PeftTensors& placed) {
  std::set<std::string> used;
  for (const HfLayout& layout : placed.tensors) {
    const auto found = file_.tensors().find(layout.tensor);
    if (found == file_.tensors().end()) {
      return Refuse(layout.tensor, absl::StrCat("missing beside others of its layer; wanted the "
                                                "shape ",
                                                ShapeText(layout.shape)));
    }
    const SafetensorsTensor& stored = found->second;
    const std::optional<DType> dtype = KeptAs(stored.dtype);
    if (!dtype) {
      return Refuse(layout.tensor,
                    absl::StrCat("wanted F64, F32, BF16 or F16, found ", Name(stored.dtype)));
    }
    if (stored.shape != layout.shape) {
      const bool narrow = absl::StrContains(layout.tensor, ".lora_");
      return Refuse(
          layout.tensor,
          absl::StrCat(
              "wanted the shape ", ShapeText(layout.shape), ", by ",
              narrow ? absl::StrCat(config_.ranks.empty() ? "r of " : "r and rank_pattern of ",
                                    kAdapterConfigName, " and ")
                     : "",
              "the sizes of the base ", base.directory.path(), ", found ",
              ShapeText(stored.shape)));
    }
    used.insert(layout.tensor);
    const std::string target = TargetOf(AdaptedModuleOf(layout.parameters.front().name));
    const auto layer = layers_.find(target);
    const double factor = layer == layers_.end() ? 1 : layer->second.scale() / numbers_.scale();
    weights_.push_back({.layout = layout, .dtype = *dtype, .stored = stored, .factor = factor});
  }
  for (const auto& [name, tensor] : file_.tensors()) {
    if (used.contains(name)) continue;
    if (!absl::StartsWith(name, kPeftPrefix)) {
      return Refuse(name, absl::StrCat("wanted a name that begins with ", kPeftPrefix,
                                       ", as PEFT writes it"));
    }
    if (!config_.numbers.dora && absl::EndsWith(name, kPeftMagnitude)) {
      return Refuse(name, absl::StrCat("wanted no magnitudes, because use_dora of ",
                                       kAdapterConfigName, " is false"));
    }
    return Refuse(name,
                  absl::StrCat("wanted an adapter of a linear layer of ", base.directory.path(),
                               " that is no head or router, of experts that target_parameters ",
                               "names, or a module of its own that is not tied to another, found ",
                               "another tensor"));
  }
  return absl::OkStatus();
}

// PEFT passes over tensors whose layers adapter_config.json does not name, and gives layers first
// values that the file lacks. Both would be another model.
absl::Status PeftDirectory::CheckLoads(const HfModel& base, const PeftNames& names,
                                       const PeftTensors& placed) {
  if (!placed.targets.empty() && config_.transposed != placed.transposed) {
    const auto text = [](bool value) { return value ? "true" : "false"; };
    return absl::InvalidArgumentError(
        absl::StrCat(path_, "/", kAdapterConfigName, ":\nfan_in_fan_out: wanted ",
                     text(placed.transposed), ", since the layers of ", base.directory.path(),
                     " keep ", placed.transposed ? "[in, out]" : "[out, in]", " matrices, found ",
                     text(config_.transposed)));
  }
  absl::Status status;
  const bool by_name = config_.KnowsTargets();
  ForEachSpec(base.config, OfAllLayers(config_.numbers.rank), [&](const ParameterSpec& spec) {
    if (spec.stacked || !status.ok()) return;
    const bool narrow = IsLowRank(spec.name);
    const auto layout = narrow ? names.OfAdapter(spec.name) : names.OfModule(spec.name);
    if (!layout.ok() || (narrow && !by_name)) return;
    const std::string module(ModuleOf(layout->tensor));
    const bool there = narrow ? placed.targets.contains(module)
                              : placed.saved.contains(ModuleOfParameter(layout->tensor));
    const bool named = narrow ? config_.Targets(module) : config_.Saves(layout->tensor);
    if (there == named) return;
    const char* const key = narrow ? "target_modules" : "modules_to_save";
    const std::string tensor =
        narrow ? absl::StrCat(kPeftPrefix, module, kLowRankDown) : kPeftPrefix + layout->tensor;
    const char* const unnamed = narrow
                                    ? " does not name it, so PEFT would not load it"
                                    : " does not name it, so PEFT would load it and not train it; "
                                      "model.merge_and_unload() of PEFT writes the whole model";
    status = Refuse(tensor, there ? absl::StrCat(key, " of ", kAdapterConfigName, unnamed)
                                  : absl::StrCat("missing, though ", key, " of ",
                                                 kAdapterConfigName, " names it"));
  });
  return status;
}

int64_t PeftDirectory::ElementsOf(const PeftWeight& weight) const {
  int64_t elements = 0;
  for (const HfParameter& parameter : weight.layout.parameters) {
    elements += WidenedShape(parameter, numbers_.rank).elements();
  }
  return elements;
}

absl::Status PeftDirectory::ForEachParameter(const PeftWeight& weight,
                                             const UseParameter& use) const {
  const HfLayout& layout = weight.layout;
  std::vector<char> tensor(size_t(weight.stored.bytes));
  RETURN_IF_ERROR(file_.Read(weight.stored, 0, tensor.data(), tensor.size()));
  if (weight.stored.dtype == HfDType::kF16) {
    std::vector<uint16_t> halves(tensor.size() / sizeof(uint16_t));
    std::memcpy(halves.data(), tensor.data(), tensor.size());
    tensor.resize(halves.size() * sizeof(float));
    std::transform(halves.begin(), halves.end(), reinterpret_cast<float*>(tensor.data()),
                   HalfToFloat);
  }
  const size_t element = SizeOf(weight.dtype);
  const int64_t elements = int64_t(tensor.size() / element);
  if (int64_t at = FirstNotFinite(tensor.data(), elements, weight.dtype); at < elements) {
    std::vector<int64_t> index(layout.shape.size());
    for (size_t dim = index.size(); dim-- > 0; at /= layout.shape[dim]) {
      index[dim] = at % layout.shape[dim];
    }
    return Refuse(layout.tensor, absl::StrCat("wanted finite numbers, found NaN or infinity at ",
                                              ShapeText(index)));
  }
  const size_t slice_bytes = size_t(layout.slice_elements()) * element;
  std::vector<char> values;
  for (const HfParameter& parameter : layout.parameters) {
    values.resize(size_t(parameter.shape.elements()) * element);
    TakeRows(parameter, element, tensor.data() + size_t(parameter.index.value_or(0)) * slice_bytes,
             values.data());
    HfParameter whole = parameter;
    if (!WidenRank({.rank = numbers_.rank, .factor = weight.factor}, weight.dtype, whole, values)) {
      return Refuse(layout.tensor,
                    absl::StrCat("wanted numbers that ", Name(weight.dtype), " has ", weight.factor,
                                 " times as large, since all layers have one scale ",
                                 "here, found others; model.merge_and_unload() of PEFT writes the ",
                                 "whole model"));
    }
    RETURN_IF_ERROR(use(whole, values));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
