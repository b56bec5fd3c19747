#include "train/trainer/model_flops.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "train/config/frozen.h"

namespace trainyard {
namespace {

// The query-key pairs of a micro-batch's rows that the mask allows within a sequence, and that lie
// in two documents.
double PairsBetweenDocuments(const AttentionMask& mask, const SequencePart& part,
                             const std::vector<int32_t>& begins) {
  double pairs = 0;
  for (size_t row = 0; row < begins.size(); ++row) {
    const int64_t position = part.position(int64_t(row) % part.rows);
    const KeyInterval seen = KeysSeen(mask, position, position + 1);
    pairs += double(std::max<int64_t>(0, begins[row] - seen.begin));
  }
  return pairs;
}

}  // namespace

ModelFlops::ModelFlops(const JobConfig& job, const ModelConfig& model)
    : of_sequences_(TrainedFlopsPerToken(job, model) *
                    double(job.batch.global * job.batch.sequence)) {
  if (ResetsAttentionMask(job.data)) per_pair_ = TrainedFlopsPerPair(job, model);
}

double ModelFlops::OfStep(const StepBatch& batch, const SequencePart& part, const Mesh& mesh,
                          Collective& everyone) const {
  if (per_pair_.empty()) return of_sequences_;
  double saved = 0;
  // Tensor ranks and pipeline stages have the same rows: one of them counts the pairs.
  if (mesh.coordinate(kTensorAxes | Axis::kPipeline) == 0) {
    for (const auto& [mask, flops] : per_pair_) {
      for (const MicroBatchData& micro : batch) {
        const auto& begins = std::get<std::vector<int32_t>>(micro.at(kDocumentBegins));
        saved += flops * PairsBetweenDocuments(mask, part, begins);
      }
    }
  }
  everyone.AllReduceSum(Tensor{{&saved, DType::kF64, Shape{1}}});
  return of_sequences_ - saved;
}

}  // namespace trainyard
