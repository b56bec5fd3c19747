// Gradients, loss and norm summed over ranks; updated parameters gathered.
#include <sstream>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

std::string Text(const FlatRange& range, AxisSet axes) {
  std::ostringstream out;
  out << "flat=" << range.offset << '+' << range.elements << " axes=" << axes;
  return out.str();
}

// In place, over a range of the gradients.
class ReduceGradientsOp final : public Op {
 public:
  ReduceGradientsOp(const FlatRange& range, AxisSet axes) : range_(range), axes_(axes) {}
  absl::string_view name() const override { return "reduce_gradients"; }
  AxisSet group() const override { return axes_; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(range_, axes_); }
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

// Leaves each rank the sums of its shard.
class ScatterGradientsOp final : public Op {
 public:
  explicit ScatterGradientsOp(const Bucket& bucket) : bucket_(bucket) {}
  absl::string_view name() const override { return "scatter_gradients"; }
  AxisSet group() const override { return bucket_.zero_axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(bucket_.flat, bucket_.zero_axes); }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(bucket_.flat.elements) * double(SizeOf(program.precision.accumulate))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return [&collective = binder.collective(bucket_.zero_axes),
            all = binder.flat(FlatBuffer::kGradient, bucket_.flat),
            own = binder.flat(FlatBuffer::kGradient, bucket_.own)](Exec&) {
      collective.ReduceScatterSum(all, own);
    };
  }

 private:
  Bucket bucket_;
};

class GatherBucketOp final : public Op {
 public:
  explicit GatherBucketOp(const Bucket& bucket) : bucket_(bucket) {}
  absl::string_view name() const override { return "gather_parameters"; }
  AxisSet group() const override { return bucket_.zero_axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(bucket_.flat, bucket_.zero_axes); }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(bucket_.flat.elements) * double(SizeOf(program.precision.compute))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return [&collective = binder.collective(bucket_.zero_axes),
            all = binder.flat(FlatBuffer::kCompute, bucket_.flat),
            own = binder.flat(FlatBuffer::kCompute, bucket_.own)](Exec&) {
      collective.AllGather(own, all);
    };
  }

 private:
  Bucket bucket_;
};

// Losses and squared gradient norm lie side by side.
class ReduceScalarsOp final : public Op {
 public:
  explicit ReduceScalarsOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "reduce_scalars"; }
  AxisSet group() const override { return axes_; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override {
    static_assert(offsetof(StepState, auxiliary_loss) ==
                  offsetof(StepState, loss) + sizeof(double));
    static_assert(offsetof(StepState, grad_norm_squared) ==
                  offsetof(StepState, loss) + 2 * sizeof(double));
    Tensor scalars;
    scalars.data = &binder.step_state()->loss;
    scalars.dtype = DType::kF64;
    scalars.shape = {3};
    return [&collective = binder.collective(axes_), scalars](Exec&) {
      collective.AllReduceSum(scalars);
    };
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

// Of the list that completes gradients, and after which nothing of a step's backward comes.
Instance OnCommunicationStream(std::shared_ptr<const Op> op) {
  return {.op = std::move(op),
          .list = List::kBackwardWeight,
          .stream = Stream::kCommunication,
          .when = When::kLastMicroBatch,
          .label = "grad_sync"};
}

}  // namespace

Instance ReduceGradients(const FlatRange& gradients, AxisSet axes) {
  return OnCommunicationStream(std::make_shared<ReduceGradientsOp>(gradients, axes));
}

Instance ReduceBucket(const Bucket& bucket) {
  if (bucket.zero_axes.empty()) return ReduceGradients(bucket.flat, bucket.reduce_axes);
  return OnCommunicationStream(std::make_shared<ScatterGradientsOp>(bucket));
}

void ReduceTied(Recorder& recorder, const FlatRange& gradients) {
  recorder.EmitEffect(std::make_shared<ReduceGradientsOp>(gradients, Axis::kEnds),
                      List::kOptimizer);
}

void GatherBucket(Recorder& recorder, List list, const Bucket& bucket) {
  if (bucket.zero_axes.empty()) return;
  recorder.EmitEffect(std::make_shared<GatherBucketOp>(bucket), list);
}

void ReduceScalars(Recorder& recorder, AxisSet axes) {
  if (axes.empty()) return;
  recorder.EmitEffect(std::make_shared<ReduceScalarsOp>(axes), List::kOptimizer);
}

void WaitForCommunication(Recorder& recorder) {
  recorder.EmitEffect(std::make_shared<WaitOp>(), List::kOptimizer);
}

}  // namespace trainyard::ops
