#include "train/step/layout.h"

#include <string>

#include "common/status_macros.h"
#include "train/pipeline/divide.h"

namespace trainyard {

absl::StatusOr<Layout> LayoutOf(const JobConfig& job, const ModelConfig& model) {
  const ParallelismConfig& p = job.parallelism;
  Layout layout{.mesh = MeshOf(job, model), .cuts = {}, .schedule = {}};
  const int parts = int(p.pipeline * p.virtual_pipeline);
  ASSIGN_OR_RETURN(const std::vector<BlockRange> blocks,
                   DivideBlocks(FactsOf(model).layers, parts));
  for (size_t i = 0; i + 1 < blocks.size(); ++i) layout.cuts.push_back(int(blocks[i].end) - 1);
  ASSIGN_OR_RETURN(layout.schedule, MakeSchedule({.kind = p.schedule_kind(),
                                                  .stages = int(p.pipeline),
                                                  .chunks = int(p.virtual_pipeline),
                                                  .micro_batches = int(AccumulationSteps(job))}));
  return layout;
}

CheckpointLayout RecordedLayout(const JobConfig& job, int64_t threads) {
  CheckpointLayout layout;
  layout.data = DataParallel(job);
  CopyAxes(job.parallelism, layout);
  layout.schedule = std::string(job.parallelism.schedule_kind()->name);
  layout.zero = Name(job.parallelism.zero);
  layout.threads = threads;
  return layout;
}

}  // namespace trainyard
