#include "train/config/mesh.h"

namespace trainyard {
namespace {

AxisSet ExpertAxes(ExpertSplit split) {
  AxisSet axes = Axis::kExpert;
  if (split != ExpertSplit::kExpert) axes = axes | kTensorAxes;
  if (split == ExpertSplit::kExpertTensorContext) axes = axes | Axis::kContext;
  return axes;
}

}  // namespace

Mesh MeshOfTensorRanks(int tensor, const ModelConfig& model) {
  const int kv_heads = int(FactsOf(model).kv_heads);
  return {.tensor = tensor, .kv_replicas = tensor > kv_heads ? tensor / kv_heads : 1};
}

Mesh MeshOf(const JobConfig& job, const ModelConfig& model) {
  const ParallelismConfig& p = job.parallelism;
  const Mesh ranks = MeshOfTensorRanks(int(p.tensor), model);
  return {.tensor = ranks.tensor,
          .kv_replicas = ranks.kv_replicas,
          .context = int(p.context),
          .data = int(DataParallel(job)),
          .expert = int(p.expert),
          .expert_axes = ExpertAxes(p.expert_split),
          .pipeline = int(p.pipeline)};
}

}  // namespace trainyard
