#include "train/trainer/counted_targets.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "models/language_model.h"

namespace trainyard {

int64_t UncountedTargets(const StepBatch& batch, const Mesh& mesh) {
  // Tensor ranks and pipeline stages have the same rows.
  if (mesh.coordinate(kTensorAxes | Axis::kPipeline) != 0) return 0;
  int64_t uncounted = 0;
  for (const MicroBatchData& micro : batch) {
    const auto found = micro.find("targets");
    CHECK(found != micro.end()) << "a batch without targets";
    const auto& targets = std::get<std::vector<int32_t>>(found->second);
    uncounted += std::count(targets.begin(), targets.end(), kNotCounted);
  }
  return uncounted;
}

int64_t SumUncounted(const StepBatch& batch, const Mesh& mesh, Collective& everyone) {
  int64_t uncounted = UncountedTargets(batch, mesh);
  everyone.AllReduceSum(Tensor{{&uncounted, DType::kI64, Shape{1}}});
  return uncounted;
}

absl::Status CheckCounted(absl::string_view field, int64_t tokens, int64_t uncounted) {
  if (uncounted < tokens) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(field, ": wanted a target that is counted in every global batch, found none of ",
                   tokens, "; with eod_mask_loss, a document of one token has none"));
}

}  // namespace trainyard
