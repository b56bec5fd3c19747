#include "train/start/order_check.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "kernels/order/accesses.h"
#include "kernels/order/backend.h"
#include "kernels/order/world.h"
#include "models/program/executable.h"
#include "train/step/step_runner.h"

namespace trainyard {
namespace {

// The lines that a rank's engine makes first.
constexpr Accesses::Line kComputeLine = 0, kCommunicationLine = 1;

// A schedule repeats itself between its beginning and its end, so a shorter one with the same slots
// has the same actions side by side: at least three micro-batches, and a round more than it takes
// to fill the slots.
PipelineSchedule Shortened(const PipelineSchedule& schedule, int stage) {
  const int stages = schedule.options.stages;
  const auto with = [&](int micro_batches) -> std::optional<PipelineSchedule> {
    ScheduleOptions options = schedule.options;
    options.micro_batches = micro_batches;
    absl::StatusOr<PipelineSchedule> made = MakeSchedule(options);
    const bool same =
        made.ok() && made->stages[size_t(stage)].slots == schedule.stages[size_t(stage)].slots;
    return same ? std::optional(*std::move(made)) : std::nullopt;
  };
  const int least = stages == 1 ? 2 : 2 * stages;
  for (int n = least; n + stages < schedule.options.micro_batches; n += stages) {
    if (!with(n)) continue;
    if (auto shorter = with(n + stages)) return *std::move(shorter);
  }
  return schedule;
}

// Inputs of one micro-batch, all zero.
MicroBatchData ZeroInputs(const Program& program) {
  MicroBatchData data;
  for (const auto& [name, value] : program.inputs) {
    const ValueInfo& info = program.info(value);
    const size_t elements = size_t(info.shape.elements());
    if (info.dtype == DType::kI32) {
      data[name] = std::vector<int32_t>(elements);
    } else {
      data[name] = std::vector<float>(elements);
    }
  }
  return data;
}

// The engine of one rank on a device that notes accesses.
class NotedRank {
 public:
  NotedRank(PipelineSchedule schedule, DeviceKind device, const Mesh& mesh)
      : schedule_(std::move(schedule)),
        backend_(accesses_, device),
        world_(accesses_, mesh.rank, mesh.ranks(), [this](const void* received, const void* sent) {
          return answers_.contains({received, sent});
        }) {}

  absl::Status Create(const Program& program, const MemoryPlan& plan) {
    std::set<Group> groups = program.Groups();
    const Group pipeline{Stream::kCompute, Axis::kPipeline};
    if (program.mesh.pipeline > 1) groups.insert(pipeline);
    CollectiveTable table;
    for (const Group& group : groups) {
      ASSIGN_OR_RETURN(groups_.emplace_back(),
                       world_.Group("order", program.mesh.Members(group.axes)));
      table[group] = groups_.back().get();
    }
    ASSIGN_OR_RETURN(executable_, Executable::Create(program, plan, backend_, 1, table));
    runner_.emplace(*executable_, schedule_, program.mesh.pipeline > 1 ? table[pipeline] : nullptr);
    accesses_.set_author([this](Accesses::Line line) -> const void* {
      return line == kComputeLine         ? executable_->LastGiven(Stream::kCompute)
             : line == kCommunicationLine ? executable_->LastGiven(Stream::kCommunication)
                                          : nullptr;
    });
    FindAnswers();
    return absl::OkStatus();
  }

  // Every kind of action follows each kind that it may follow, in the order of a job. A GPU replays
  // graphs from the second step on.
  void Run() {
    const MicroBatchData zeros = ZeroInputs(executable_->program());
    const StepBatch batch(size_t(schedule_.options.micro_batches), zeros), validation(2, zeros);
    executable_->WriteStepState({});
    executable_->Run(Action::kInit);
    executable_->Run(Action::kPrepare);
    for (int step = 1; step <= 3; ++step) {
      runner_->Step(InitialState({.step = step, .tokens = 1}), batch, [] {});
      ReadAsACheckpointDoes();
      if (step != 2) continue;
      for (int i = 0; i < 2; ++i) runner_->Forward(validation, 1);
    }
    executable_->Run(Action::kPrepare);  // As after a load.
    runner_->Forward(validation, 1);
    executable_->WaitForCommunication();
  }

  absl::Status Ordered() const {
    const auto conflict = accesses_.conflict();
    if (!conflict) return absl::OkStatus();
    const Program& program = executable_->program();
    return absl::InternalError(
        absl::StrCat("rank ", program.mesh.rank, " of ", program.mesh.ranks(), ": nothing orders ",
                     Text(conflict->first), " and ", Text(conflict->second), ", of the same ",
                     conflict->bytes, " bytes", NamesOf(conflict->data, conflict->bytes)));
  }

 private:
  // The gradient of a value that was sent comes back after the value has arrived, so it may use the
  // value's memory.
  void FindAnswers() {
    const Program& program = executable_->program();
    for (size_t chunk = 0; chunk < program.chunks.size(); ++chunk) {
      for (int slot = 0; slot < executable_->plan().slots[chunk]; ++slot) {
        const auto at = [&](Value value) { return executable_->tensor(value, slot).data; };
        for (const Crossing& gradient : program.chunks[chunk].sent) {
          if (!gradient.gradient.valid()) continue;
          for (const Crossing& value : program.chunks[chunk].sent) {
            answers_.emplace(at(gradient.gradient), at(value.value));
          }
        }
      }
    }
  }

  void ReadAsACheckpointDoes() {
    const Program& program = executable_->program();
    const auto read = [&](const Tensor& saved) {
      accesses_.Read(kComputeLine, "checkpoint", saved.data, saved.bytes());
    };
    executable_->Run(Action::kJoin);
    for (const Bucket& bucket : program.buckets) read(executable_->master(bucket.shard));
    for (const FlatBuffer buffer : kStateBuffers) {
      for (const FlatRange& range : program.place(buffer).ranges()) {
        read(executable_->flat(buffer, range));
      }
    }
  }

  std::string Text(const Accesses::Access& access) const {
    const auto* const author = static_cast<const Instance*>(access.author);
    return absl::StrCat(access.op, access.writes ? ", which writes" : ", which reads",
                        author == nullptr
                            ? " (a message)"
                            : absl::StrCat(" (", executable_->program().Describe(*author), ")"));
  }

  // The values and parameters that use the memory.
  std::string NamesOf(const std::byte* data, size_t bytes) const {
    const Program& program = executable_->program();
    std::set<std::string> names;
    const auto look = [&](Value value, int slots) {
      for (int slot = 0; slot < slots; ++slot) {
        const Tensor tensor = executable_->tensor(value, slot);
        const auto* const begin = static_cast<const std::byte*>(tensor.data);
        const bool overlaps = begin < data + bytes && data < begin + tensor.bytes();
        if (overlaps) names.insert(program.info(value).name);
      }
    };
    for (const ParameterStorage& storage : program.storages) {
      look(storage.weight, 1);
      if (storage.gradient.valid()) look(storage.gradient, 1);
    }
    for (size_t id = 0; id < program.values.size(); ++id) {
      const Placement& placement = executable_->plan().placements[id];
      if (placement.arena == Arena::kNone) continue;
      const bool in_slots = placement.arena == Arena::kSlot;
      look({int32_t(id)}, in_slots ? executable_->plan().slots[size_t(placement.chunk)] : 1);
    }
    return names.empty() ? "" : absl::StrCat(": ", absl::StrJoin(names, ", "));
  }

  const PipelineSchedule schedule_;
  Accesses accesses_;
  const OrderBackend backend_;
  std::set<std::pair<const void*, const void*>> answers_;
  OrderWorld world_;
  std::vector<std::unique_ptr<Collective>> groups_;
  std::unique_ptr<Executable> executable_;
  std::optional<StepRunner> runner_;
};

}  // namespace

absl::Status CheckOrder(const Program& program, const MemoryPlan& plan,
                        const PipelineSchedule& schedule, DeviceKind device) {
  NotedRank rank(Shortened(schedule, program.mesh.coordinate(Axis::kPipeline)), device,
                 program.mesh);
  RETURN_IF_ERROR(rank.Create(program, plan));
  rank.Run();
  return rank.Ordered();
}

}  // namespace trainyard
