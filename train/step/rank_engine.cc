#include "train/step/rank_engine.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/config/adapter.h"
#include "train/config/fp8.h"
#include "train/config/frozen.h"
#include "train/config/precision.h"
#include "train/step/communication.h"
#include "train/step/memory_limit.h"

namespace trainyard {
namespace {

Precision PrecisionOf(const JobConfig& job, DeviceKind device, const EngineOptions& options) {
  Precision precision = options.precision == nullptr ? FormatsOf(job) : *options.precision;
  if (device == DeviceKind::kCuda) precision = precision.WithRoundedLogits();
  if (job.parallelism.reduction == Reduction::kBF16) precision.reduced = DType::kBF16;
  return precision;
}

std::optional<PreferenceOptions> PreferenceOf(const JobConfig& job) {
  if (!job.preference) return std::nullopt;
  return PreferenceOptions{.method = job.preference->method, .beta = job.preference->beta};
}

// A chunk of the head adds to the gradient of the head's weight, which a GPU reads and writes in
// memory each time (docs/performance.md). So a chunk has thousands of rows there.
int64_t LogitsBytesOn(DeviceKind device) {
  constexpr int64_t kOnGpu = int64_t{1} << 30;
  return device == DeviceKind::kCuda ? kOnGpu : kLogitsBytes;
}

// Without the memory that rounded weights take, `kept` becomes false.
WeightRounding RoundingOf(const JobConfig& job, const EngineOptions& options) {
  if (options.round_each_time) return {.micro_batches = 1, .in_windows = true};
  const bool in_windows = job.parallelism.zero == Zero::kFull;
  return {.micro_batches = AccumulationSteps(job), .in_windows = in_windows, .kept = !in_windows};
}

TrainingOptions OptionsOf(const JobConfig& job, const Layout& layout, DeviceKind device,
                          const EngineOptions& options) {
  return {.record = {.precision = PrecisionOf(job, device, options),
                     .micro_batch = job.batch.micro,
                     .sequence = job.batch.sequence,
                     .mesh = layout.mesh,
                     .context_exchange = job.parallelism.context_exchange,
                     .cuts = layout.cuts,
                     .stages = layout.schedule.stage_of,
                     .expert_rows = options.expert_rows,
                     .logits_bytes = LogitsBytesOn(device),
                     .documents = ResetsAttentionMask(job.data),
                     .restart_positions = FactsOf(job.data).packs,
                     .deterministic = job.deterministic,
                     .last_logits = job.validation && job.validation->generate,
                     .preference = PreferenceOf(job),
                     .adapter = AdapterOf(job),
                     .plain = PlainLayersOf(job),
                     .weight_rounding = RoundingOf(job, options),
                     .fuse = options.fuse},
          .optimizer = job.optimizer.options,
          .bucket_bytes = options.bucket_bytes,
          .zero = job.parallelism.zero,
          .recompute = {.blocks = job.recompute.blocks,
                        .norms_and_activations = job.recompute.norms_and_activations},
          .frozen = FrozenBy(job),
          .offload = job.optimizer.offload && device == DeviceKind::kCuda};
}

RankPlan RecordAndPlan(const JobConfig& job, const ModelConfig& model, const Layout& layout,
                       DeviceKind device, const EngineOptions& options) {
  const std::unique_ptr<Model> of_family = options.model == nullptr ? CreateModel(model) : nullptr;
  const int stage = layout.mesh.coordinate(Axis::kPipeline);
  const auto plan = [&](bool may_keep) {
    TrainingOptions recorded = OptionsOf(job, layout, device, options);
    recorded.record.weight_rounding.kept &= may_keep;
    Program program =
        RecordTraining(options.model == nullptr ? *of_family : *options.model, recorded);
    if (options.edit) options.edit(program);
    MemoryPlan memory = PlanMemory(program, PlanFor(layout.schedule, stage, device));
    return RankPlan{std::move(program), std::move(memory)};
  };
  RankPlan made = plan(true);
  if (!options.memory_bytes || made.memory.rounded_bytes == 0) return made;
  const DeviceMemory memory{.kind = device, .bytes = size_t(*options.memory_bytes)};
  return made.memory.total_bytes() <= memory.for_plan() ? std::move(made) : plan(false);
}

// Connects all groups of a rank before it has given its device any work.
//
// The ranks meet: the two of a pair, then those that exchange data, and at the end of each group
// all of it. A meeting ends once all of its ranks have come, and a rank comes to its next meeting
// when its last one has ended. No cycle of ranks can wait, because all ranks go through their
// meetings in one order: by group, then by pair, then the exchanges, then all of the group. (Groups
// of one key have no rank in common, so the order among these does not matter.) Take the first
// meeting that has not ended. Every earlier one has, so each of its ranks has come, or comes
// without waiting for another. So it ends, and all others after it.
absl::Status ConnectAll(const CollectiveTable& collectives,
                        const std::map<Group, Connections>& connections) {
  for (const auto& [group, of_group] : connections) {
    RETURN_IF_ERROR(collectives.at(group)->Connect(of_group));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RankPlan> PlanRank(const JobConfig& job, const ModelConfig& model, int rank,
                                  DeviceKind device, const EngineOptions& options) {
  ASSIGN_OR_RETURN(Layout layout, LayoutOf(job, model));
  layout.mesh.rank = rank;
  return RecordAndPlan(job, model, layout, device, options);
}

absl::Status DumpProgram(const JobConfig& job, const ModelConfig& model, int rank,
                         std::ostream& out) {
  ASSIGN_OR_RETURN(Layout layout, LayoutOf(job, model));
  layout.mesh.rank = rank;
  TrainingOptions options = OptionsOf(job, layout, DeviceKind::kCpu, {});
  options.after_pass = [&](const char* pass, const Program& program) {
    out << "== after " << pass << '\n' << program.Dump();
  };
  RecordTraining(*CreateModel(model), options);
  for (const auto& [name, device] :
       {std::pair("memory", DeviceKind::kCpu), std::pair("memory on a GPU", DeviceKind::kCuda)}) {
    ASSIGN_OR_RETURN(const RankPlan plan, PlanRank(job, model, rank, device, {}));
    out << "== " << name << ": " << plan.memory.Summary() << '\n';
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RankEngine>> RankEngine::Create(const JobConfig& job,
                                                               const ModelConfig& model,
                                                               const EngineOptions& options,
                                                               const Backend& backend,
                                                               CollectiveWorld& world) {
  ASSIGN_OR_RETURN(Layout layout, LayoutOf(job, model));
  CHECK(layout.mesh.ranks() == world.size())
      << layout.mesh.ranks() << " ranks in a world of " << world.size();
  layout.mesh.rank = world.rank();
  std::unique_ptr<RankEngine> engine(new RankEngine(std::move(layout)));
  auto [program, plan] = RecordAndPlan(job, model, engine->layout_, backend.device(), options);
  engine->layout_.mesh = program.mesh;  // Now with sharing_stages.
  const Mesh& mesh = engine->mesh();
  std::set<Group> groups = program.Groups();
  const Group pipeline{Stream::kCompute, Axis::kPipeline};
  if (mesh.pipeline > 1) groups.insert(pipeline);
  CollectiveTable& collectives = engine->collectives_;
  for (const Group& group : groups) {
    ASSIGN_OR_RETURN(collectives[group], engine->Join(world, group));
  }
  const PipelineSchedule& schedule = engine->layout_.schedule;
  RETURN_IF_ERROR(ConnectAll(collectives, ConnectionsOf(program, schedule)));
  Collective* const stages = mesh.pipeline > 1 ? collectives[pipeline] : nullptr;
  if (options.memory_bytes) {
    const DeviceMemory memory{.kind = backend.device(), .bytes = size_t(*options.memory_bytes)};
    RETURN_IF_ERROR(CheckMemory(plan, memory, job, model));
  }
  if (options.host_memory_bytes) {
    RETURN_IF_ERROR(CheckHostMemory(plan, size_t(*options.host_memory_bytes), job));
  }
  ASSIGN_OR_RETURN(engine->executable_, Executable::Create(std::move(program), plan, backend,
                                                           options.threads, collectives));
  engine->runner_.emplace(*engine->executable_, schedule, stages);
  return engine;
}

absl::StatusOr<Collective*> RankEngine::Join(CollectiveWorld& world, Group group) {
  const std::vector<int> members = mesh().Members(group.axes);
  const std::string name = absl::StrCat(group.stream == Stream::kCommunication ? "async " : "",
                                        Names(group.axes), " of ", members.front());
  ASSIGN_OR_RETURN(std::unique_ptr<Collective> joined, world.Group(name, members));
  groups_.push_back(std::move(joined));
  return groups_.back().get();
}

}  // namespace trainyard
