// One rank's part of a model, ready to run steps: its program, bound to memory; its communicators;
// and its stage of the pipeline schedule.

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
  double expert_rows = 2;                         // As RecordOptions::expert_rows.
  bool fuse = true;                               // As RecordOptions::fuse.
  std::optional<int64_t> memory_bytes = {};       // The device's; absent: not known.
  std::optional<int64_t> host_memory_bytes = {};  // The rank's part of its host's; likewise.
  // For tests that compare: weights are rounded, and their greatest values found, for each use. The
  // bits are the same.
  bool round_each_time = false;
  // For tests of wrong programs: may change the program before it is planned.
  std::function<void(Program&)> edit = nullptr;
  // For tests of recipes that no job can ask for. Null: the one of the job.
  const Precision* precision = nullptr;
  // For tests of models that belong to no family. Null: the model of the configuration.
  const Model* model = nullptr;
};

// The program of one of the job's ranks, and its memory plan. Needs neither devices nor other
// ranks. `job` must be valid, and `rank` must be one of its ranks. If only the rounded weights that
// the program keeps are too much for options.memory_bytes, it is one that keeps none; the ranks of
// a job may differ in this.
struct RankPlan {
  Program program;
  MemoryPlan memory;
};
absl::StatusOr<RankPlan> PlanRank(const JobConfig& job, const ModelConfig& model, int rank,
                                  DeviceKind device, const EngineOptions& options = {});

// Writes the program of one of the job's ranks on a CPU after each pass, line by line, and its
// memory on a CPU and on a GPU, whose head has larger chunks. The arguments are as in PlanRank.
absl::Status DumpProgram(const JobConfig& job, const ModelConfig& model, int rank,
                         std::ostream& out);

// Not thread-safe.
class RankEngine {
 public:
  // Records, plans and binds the rank's program. All ranks of the world must call this at the same
  // time. `job` must be valid and have as many ranks as the world. `backend` and `world` must
  // outlive the engine. Parameters are not initialised. Errors:
  // - FAILED_PRECONDITION: the program needs more than the device's memory, or more of the host's
  //   than the rank may take (memory_limit.h).
  // - RESOURCE_EXHAUSTED, with the planned bytes: others use the memory.
  // - Those of CollectiveWorld::Group.
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
  // The rows of each sequence that are on this rank.
  SequencePart part() const { return executable_->program().sequence_part(); }

 private:
  explicit RankEngine(Layout layout) : layout_(std::move(layout)) {}
  absl::StatusOr<Collective*> Join(CollectiveWorld& world, Group group);

  Layout layout_;
  std::vector<std::unique_ptr<Collective>> groups_;
  CollectiveTable collectives_;  // The same groups.
  std::unique_ptr<Executable> executable_;
  std::optional<StepRunner> runner_;
};

}  // namespace trainyard
