#include "train/trainer/counted_targets.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "models/language_model.h"

namespace trainyard {
namespace {

const std::vector<int32_t>& Integers(const MicroBatchData& micro, const char* name) {
  const auto found = micro.find(name);
  CHECK(found != micro.end()) << "a batch without " << name;
  return std::get<std::vector<int32_t>>(found->second);
}

}  // namespace

BatchCounts CountBatch(const StepBatch& batch, const Mesh& mesh, const SequencePart& part) {
  BatchCounts counts;
  // Tensor ranks and pipeline stages have the same rows.
  if (mesh.coordinate(kTensorAxes | Axis::kPipeline) != 0) return counts;
  for (const MicroBatchData& micro : batch) {
    const std::vector<int32_t>& targets = Integers(micro, "targets");
    if (!micro.contains(kPreferenceSides)) {
      counts.uncounted += std::count(targets.begin(), targets.end(), kNotCounted);
      continue;
    }
    counts.uncounted += int64_t(targets.size());
    const std::vector<int32_t>& sides = Integers(micro, kPreferenceSides);
    const std::vector<int32_t>& begins = Integers(micro, kDocumentBegins);
    for (size_t t = 0; t < sides.size(); ++t) {
      if (sides[t] < 0 || sides[t] % 2 != 0) continue;  // Not of a chosen answer.
      counts.uncounted -= begins[t] == part.position(int64_t(t) % part.rows);
      counts.answer_targets += targets[t] != kNotCounted;
    }
  }
  return counts;
}

BatchCounts SumCounts(const StepBatch& batch, const Mesh& mesh, const SequencePart& part,
                      Collective& everyone) {
  BatchCounts counts = CountBatch(batch, mesh, part);
  static_assert(sizeof(BatchCounts) == 2 * sizeof(int64_t));
  everyone.AllReduceSum(Tensor{{&counts, DType::kI64, Shape{2}}});
  return counts;
}

absl::Status CheckCounted(absl::string_view field, int64_t tokens, int64_t uncounted) {
  if (uncounted < tokens) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(field, ": wanted a target that is counted in every global batch, found none of ",
                   tokens, "; with eod_mask_loss, a document of one token has none"));
}

}  // namespace trainyard
