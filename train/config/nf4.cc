#include "train/config/nf4.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/nf4.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/config/adapter.h"
#include "train/config/divided_blocks.h"
#include "train/config/precision.h"

namespace trainyard {
namespace {

constexpr char kBase[] = "adapter.lora.base", kWithout[] = "AS_COMPUTED";

// A low-rank adapter's narrow matrix has the inputs of its layer. Those of experts are not asked
// for: the experts' own matrices say it.
void CheckRows(const ModelConfig& model, Violations& violations) {
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(model), {.rank = 1})) {
    for (const ParameterSpec& spec : storage.parameters) {
      const bool of_expert = spec.stacked && spec.shape.rank() == 3;
      if (!of_expert && !absl::EndsWith(spec.name, kLowRankDown)) continue;
      const int64_t inputs = spec.shape.back();
      if (inputs % kNf4Block == 0) continue;
      return violations.Add(
          kBase,
          absl::StrCat(kWithout, " for a model whose linear layers and experts have not all a ",
                       "multiple of ", kNf4Block, " inputs"),
          absl::StrCat("NF4, and ", of_expert ? ModuleOf(spec.name) : AdaptedModuleOf(spec.name),
                       " with ", inputs),
          kWithout);
    }
  }
}

}  // namespace

void ValidateNf4(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  if (!IsBaseInNf4(job)) return;
  if (RowOf(job.precision).formats.HasScales(ProductKind::kLayer)) {
    violations.Add(kBase,
                   absl::StrCat(kWithout, " in ", Name(job.precision),
                                ", which rounds the weights of layers to 8 bits"),
                   "NF4", kWithout);
  }
  if (model == nullptr) return;
  CheckRows(*model, violations);
  if (violations.empty()) CheckBlocks(job, *model, violations);
}

}  // namespace trainyard
