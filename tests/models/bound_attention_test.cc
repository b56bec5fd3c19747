// Proves that what a job says of attention reaches the kernel: a CPU sums in one order whatever it
// is told, so no result shows this.

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "models/program/binder.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

// Has one kernel, which keeps its arguments in Exec::context.
class NotingBackend final : public Backend {
 public:
  NotingBackend() : Backend(DeviceKind::kCpu, "noting") {
    Register<AttentionBackwardArgs, &Note>();
  }
  Exec NewExec(int) const override {
    return {.context = std::make_shared<AttentionBackwardArgs>()};
  }
  std::unique_ptr<Event> NewEvent() const override { return CpuBackend().NewEvent(); }
  absl::StatusOr<Buffer> Allocate(size_t) const override {
    return absl::UnimplementedError("there is no memory");
  }
  size_t MemoryInUse() const override { return 0; }
  void CopyToDevice(const Exec&, void*, const void*, size_t) const override {}
  void CopyToHost(const Exec&, void*, const void*, size_t) const override {}
  void Synchronize(const Exec&) const override {}

 private:
  static void Note(Exec& exec, const AttentionBackwardArgs& args) {
    *static_cast<AttentionBackwardArgs*>(exec.context.get()) = args;
  }
};

// Values have shapes, and addresses that nobody reads. Nothing else may be asked for.
class ShapesBinder final : public Binder {
 public:
  ShapesBinder(const Program& program, const Backend& backend)
      : program_(program), backend_(backend) {}
  const Backend& backend() const override { return backend_; }
  Tensor tensor(Value value) const override {
    const ValueInfo& info = program_.info(value);
    return Tensor{{address_.get(), info.dtype, info.shape}};
  }
  Tensor flat(FlatBuffer, const FlatRange&) const override { std::abort(); }
  Tensor frozen(FlatBuffer, const FlatRange&, DType) const override { std::abort(); }
  Write write(Value) const override { std::abort(); }
  Write write_sums() const override { std::abort(); }
  StepState* step_state() const override { return nullptr; }  // Dropout alone reads the state.
  Collective& collective(AxisSet) const override { std::abort(); }
  std::function<void()> CheckCommunication() const override { std::abort(); }
  Call WaitForCommunication() const override { std::abort(); }
  Call FetchBlock(int, int) const override { std::abort(); }
  Call ForgetBlocks() const override { std::abort(); }

 private:
  const Program& program_;
  const Backend& backend_;
  const std::unique_ptr<double> address_ = std::make_unique<double>();
};

TEST(BoundAttention, IsSummedInOneOrderUnlessTheJobGivesThatUp) {
  const NotingBackend backend;
  for (const bool deterministic : {true, false}) {
    const Program program = RecordTraining(
        *CreateModel(TinyLlama()),
        {.record = {.micro_batch = 2, .sequence = 8, .deterministic = deterministic}});
    int found = 0;
    for (const Instance& instance : program.instances) {
      if (instance.op->name() != "attention_backward") continue;
      ++found;
      Exec exec = backend.NewExec(1);
      instance.op->Bind(ShapesBinder(program, backend), instance)(exec);
      const auto& args = *static_cast<AttentionBackwardArgs*>(exec.context.get());
      EXPECT_EQ(args.dims.sequence, 8);
      EXPECT_EQ(args.deterministic, deterministic);
    }
    EXPECT_EQ(found, 2);
  }
}

}  // namespace
}  // namespace trainyard::testing
