#include "train/config/fp8.h"

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "train/config/divided_blocks.h"
#include "train/config/inputs.h"
#include "train/config/precision.h"

namespace trainyard {
PlainLayers PlainLayersOf(const JobConfig& job) {
  const Fp8Config fp8 = job.fp8.value_or(Fp8Config());
  return {.first = fp8.first_layers_in_bf16, .last = fp8.last_layers_in_bf16};
}

void ValidateFp8(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  const Precision& formats = RowOf(job.precision).formats;
  if (job.fp8 && !formats.HasScales(ProductKind::kLayer)) {
    return violations.Add(
        "fp8", absl::StrCat("none for ", Name(job.precision), ", in which no layer is in 8 bits"),
        "a section");
  }
  if (model == nullptr) return;
  const int64_t layers = FactsOf(*model).layers;
  const PlainLayers plain = PlainLayersOf(job);
  const bool legal =
      violations.Check("fp8.first_layers_in_bf16", plain.first, {.least = 0, .most = layers - 1}) &&
      violations.Check(
          "fp8.last_layers_in_bf16", plain.last,
          {.least = 0, .most = layers - 1 - plain.first, .note = "so that a layer is in 8 bits"});
  if (!legal || !violations.empty() || !formats.HasScales(ProductKind::kLayer)) return;
  if (RoundsParts(job, *model)) {
    return violations.Add(
        "parallelism.tensor",
        absl::StrCat("at most kv_heads = ", FactsOf(*model).kv_heads, " in ", Name(job.precision),
                     ", because ranks that share a key would round parts of its gradient"),
        job.parallelism.tensor, NearestTensorDegree(job, *model));
  }
  if (formats.HasBlocks()) CheckBlocks(job, *model, violations);
}

}  // namespace trainyard
