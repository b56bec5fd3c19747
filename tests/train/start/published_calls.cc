#include "tests/train/start/published_calls.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/ops.h"
#include "kernels/order/backend.h"
#include "kernels/order/world.h"
#include "models/program/binder.h"
#include "models/program/memory.h"
#include "models/program/op.h"
#include "tests/testing/published_table.h"
#include "train/config/mesh.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

// The kernel of every op.
template <typename Args>
void WriteArgs(Exec& exec, const Args& args) {
  static_cast<CallBook*>(exec.context.get())->Add(args);
}

// A GPU whose kernels write their arguments into the CallBook of the Exec. Memory has addresses
// alone.
class WritingBackend final : public Backend {
 public:
  explicit WritingBackend(const Backend& addresses)
      : Backend(DeviceKind::kCuda, "writing"), addresses_(addresses) {
#define TRAINYARD_REGISTER_OP(Op) Register<Op##Args, &WriteArgs<Op##Args>>();
    TRAINYARD_FOR_EACH_OP(TRAINYARD_REGISTER_OP)
#undef TRAINYARD_REGISTER_OP
  }
  Exec NewExec(int threads) const override { return {.device = device(), .threads = threads}; }
  std::unique_ptr<Event> NewEvent() const override { return addresses_.NewEvent(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    return addresses_.Allocate(bytes);
  }
  size_t MemoryInUse() const override { return 0; }
  void CopyToDevice(const Exec&, void*, const void*, size_t) const override {}
  void CopyToHost(const Exec&, void*, const void*, size_t) const override {}
  void Synchronize(const Exec&) const override {}

 private:
  const Backend& addresses_;
};

// Binds instances of the compute stream to their planned places.
class PlannedBinder final : public Binder {
 public:
  PlannedBinder(const RankPlan& plan, const Backend& backend, Accesses& accesses,
                const OrderBackend& order)
      : program_(plan.program),
        backend_(backend),
        memory_(*ProgramMemory::Allocate(plan.program, plan.memory, backend)),
        world_(accesses, program_.mesh.rank, program_.mesh.ranks(),
               [](const void*, const void*) { return true; }),
        order_(order),
        exec_(order.NewExec(1)) {}

  const Backend& backend() const override { return backend_; }
  Tensor tensor(Value value) const override { return memory_.tensor(value, 0); }
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const override {
    return memory_.flat(buffer, range);
  }
  Tensor frozen(FlatBuffer buffer, const FlatRange& bytes, DType dtype) const override {
    return memory_.frozen(buffer, bytes, dtype);
  }
  Write write(Value) const override { return Write::kOverwrite; }
  Write write_sums() const override { return Write::kOverwrite; }
  StepState* step_state() const override { return memory_.step_state(); }
  // Does nothing: its members are not there.
  Collective& collective(AxisSet axes) const override {
    auto& group = groups_[axes];
    if (group == nullptr) {
      group = *world_.Group("published", program_.mesh.Members(axes));
      group->Follow(order_, exec_);
    }
    return *group;
  }
  std::function<void()> CheckCommunication() const override {
    return [] {};
  }
  Call WaitForCommunication() const override { return Nothing(); }
  Call FetchBlock(int, int) const override { return Nothing(); }
  Call ForgetBlocks() const override { return Nothing(); }

 private:
  static Call Nothing() {
    return [](Exec&) {};
  }

  const Program& program_;
  const Backend& backend_;
  const ProgramMemory memory_;
  mutable OrderWorld world_;
  const OrderBackend& order_;
  const Exec exec_;
  mutable std::map<AxisSet, std::unique_ptr<Collective>> groups_;
};

// The ranks of a run whose calls have different shapes: one of each pipeline stage and context
// position, and the last of all. Data, expert and tensor ranks of these have equal shares.
// `run_on_any` names the run without its number of GPUs: runs that differ in this alone have the
// same stages. If `walked` has the run and its layout from before, only the first and the last rank
// are returned.
std::set<int> DifferentRanks(const std::string& run_on_any, const Mesh& mesh,
                             std::set<std::string>& walked) {
  std::set<int> ranks = {0, mesh.ranks() - 1};
  const std::string layout = absl::StrCat(run_on_any, " ", mesh.pipeline, " ", mesh.context, " ",
                                          mesh.tensor, " ", mesh.expert);
  if (!walked.insert(layout).second) return ranks;
  for (int stage = 0; stage < mesh.pipeline; ++stage) {
    for (int position = 0; position < mesh.context; ++position) {
      ranks.insert((stage * mesh.data * mesh.context + position) * mesh.tensor);
    }
  }
  return ranks;
}

}  // namespace

int ForEachPublishedRank(absl::FunctionRef<bool(const Instance&)> wanted,
                         absl::FunctionRef<void(const std::string&, const CallBook&)> visit) {
  int runs = 0;
  std::set<std::string> walked;
  for (const PublishedRun& run : PublishedRuns()) {
    ++runs;
    const absl::StatusOr<JobConfig> job = ParseAndValidateJob(ReadPublished(run.name() + ".yaml"));
    CHECK(job.ok()) << run.name() << ": " << job.status();
    const ModelConfig model = *ResolveModel(job->model);
    const std::string on_any =
        absl::StrCat(run.text("page"), " ", run.text("preset"), " ", run.text("precision"), " ",
                     run.text("task"), " ", job->parallelism.virtual_pipeline);
    for (const int rank : DifferentRanks(on_any, MeshOf(*job, model), walked)) {
      const absl::StatusOr<RankPlan> plan = PlanRank(*job, model, rank, DeviceKind::kCuda);
      CHECK(plan.ok()) << run.name() << ": " << plan.status();
      Accesses accesses;
      const OrderBackend order(accesses, DeviceKind::kCuda);
      const WritingBackend backend(order);
      const PlannedBinder binder(*plan, backend, accesses, order);
      const auto book = std::make_shared<CallBook>();
      Exec exec = backend.NewExec(1);
      exec.context = book;
      for (const Instance& instance : plan->program.instances) {
        if (wanted(instance)) instance.op->Bind(binder, instance)(exec);
      }
      visit(run.name(), *book);
    }
  }
  return runs;
}

}  // namespace trainyard::testing
