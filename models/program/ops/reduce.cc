// Sums over ranks, on the communication stream, and the compute stream's wait for them.
#include <sstream>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class ReduceBucketOp final : public Op {
 public:
  ReduceBucketOp(const FlatRange& range, AxisSet axes) : range_(range), axes_(axes) {}
  absl::string_view name() const override { return "reduce_bucket"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    std::ostringstream out;
    out << "flat=" << range_.offset << '+' << range_.elements << " axes=" << axes_;
    return out.str();
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(range_.elements) * double(SizeOf(program.precision.accumulate))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return [&collective = binder.collective(axes_),
            data = binder.flat(FlatBuffer::kGradient, range_)](Exec&) {
      collective.AllReduceSum(data);
    };
  }

 private:
  FlatRange range_;
  AxisSet axes_;
};

class ReduceLossOp final : public Op {
 public:
  explicit ReduceLossOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "reduce_loss"; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override {
    Tensor loss;
    loss.data = &binder.step_state()->loss;
    loss.dtype = DType::kF64;
    loss.shape = {1};
    return [&collective = binder.collective(axes_), loss](Exec&) { collective.AllReduceSum(loss); };
  }

 private:
  AxisSet axes_;
};

class WaitOp final : public Op {
 public:
  absl::string_view name() const override { return "wait"; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.WaitForCommunication();
  }
};

Instance OnCommunicationStream(std::shared_ptr<const Op> op) {
  return {.op = std::move(op),
          .list = List::kBackwardInput,
          .stream = Stream::kCommunication,
          .when = When::kLastMicroBatch,
          .label = "grad_sync"};
}

}  // namespace

Instance ReduceBucket(const FlatRange& gradients, AxisSet axes) {
  return OnCommunicationStream(std::make_shared<ReduceBucketOp>(gradients, axes));
}

Instance ReduceLoss(AxisSet axes) {
  return OnCommunicationStream(std::make_shared<ReduceLossOp>(axes));
}

void WaitForCommunication(Recorder& recorder) {
  recorder.EmitEffect(std::make_shared<WaitOp>(), List::kOptimizer);
}

}  // namespace trainyard::ops
