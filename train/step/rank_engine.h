// One rank's part of a model, ready to step: its program bound to memory, its communicators, and
// its stage of the pipeline schedule.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective/world.h"
#include "kernels/device/backend.h"
#include "models/model.h"
#include "models/program/executable.h"
#include "train/config/job_config.h"
#include "train/step/layout.h"
#include "train/step/step_runner.h"

namespace trainyard {

struct EngineOptions {
  int threads = 1;
  size_t bucket_bytes = kBucketBytes;
  double expert_rows = 2;                    // As RecordOptions::expert_rows.
  bool fuse = true;                          // As RecordOptions::fuse.
  std::optional<int64_t> memory_bytes = {};  // Of the device; absent: not known.
  // For tests of what a wrong program does: may change it before it is planned.
  std::function<void(Program&)> edit = nullptr;
  // For tests of models that no family has; null: that of the configuration.
  const Model* model = nullptr;
};

// What one of the job's ranks runs, and where all of it lies. Needs neither devices nor other
// ranks. `job` must be valid, and `rank` one of its devices.
struct RankPlan {
  Program program;
  MemoryPlan memory;
};
absl::StatusOr<RankPlan> PlanRank(const JobConfig& job, const ModelConfig& model, int rank,
                                  DeviceKind device);

// The program of one of the job's ranks after each pass, line by line. As PlanRank.
absl::Status DumpProgram(const JobConfig& job, const ModelConfig& model, int rank,
                         std::ostream& out);

// Not thread-safe.
class RankEngine {
 public:
  // `job` must be valid; the world's ranks are the job's. `backend` and `world` must outlive the
  // engine. Parameters are not initialised yet. All ranks of the world call it at once.
  // Errors: FAILED_PRECONDITION for a program beyond the device's memory (memory_limit.h);
  // RESOURCE_EXHAUSTED, with the planned bytes, where others have taken it; those of
  // CollectiveWorld::Group.
  static absl::StatusOr<std::unique_ptr<RankEngine>> Create(const JobConfig& job,
                                                            const ModelConfig& model,
                                                            const EngineOptions& options,
                                                            const Backend& backend,
                                                            CollectiveWorld& world);

  const Mesh& mesh() const { return layout_.mesh; }
  const PipelineSchedule& schedule() const { return layout_.schedule; }
  Executable& executable() { return *executable_; }
  StepRunner& runner() { return *runner_; }
  const CollectiveTable& collectives() const { return collectives_; }
  // Of each sequence, the rows on this rank.
  SequencePart part() const { return executable_->program().sequence_part(); }

 private:
  explicit RankEngine(Layout layout) : layout_(std::move(layout)) {}
  absl::StatusOr<Collective*> Join(CollectiveWorld& world, Group group);

  Layout layout_;
  std::vector<std::unique_ptr<Collective>> groups_;
  CollectiveTable collectives_;  // The same.
  std::unique_ptr<Executable> executable_;
  std::optional<StepRunner> runner_;
};

}  // namespace trainyard
