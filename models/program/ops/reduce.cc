// Reduces gradients, loss and norm over ranks, and gathers updated parameters.
#include <sstream>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/cast.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

std::string Text(const FlatRange& range, AxisSet axes) {
  std::ostringstream out;
  out << "flat=" << range.offset << '+' << range.elements << " axes=" << axes;
  return out.str();
}

FlatBuffer GradientBuffer(bool windowed) {
  return windowed ? FlatBuffer::kGradientWindow : FlatBuffer::kGradient;
}

// The communication of one call on a range of a flat buffer.
std::vector<Communication> OneCall(CollectiveOp op, const Program& program, const FlatRange& range,
                                   DType dtype, AxisSet axes) {
  return {CallsOf(op, 1, range.elements * int64_t(SizeOf(dtype)), program.mesh.size(axes))};
}

// Reduces a range of the gradients in place.
class ReduceGradientsOp final : public Op {
 public:
  struct How {
    Reduction reduction = Reduction::kSum;
    bool windowed = false;
  };
  ReduceGradientsOp(const FlatRange& range, AxisSet axes, const How& how)
      : range_(range), axes_(axes), how_(how) {}
  absl::string_view name() const override { return "reduce_gradients"; }
  AxisSet group() const override { return axes_; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(Text(range_, axes_), is_max() ? " max" : "");
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(range_.elements) * double(SizeOf(program.precision.gradient))};
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return OneCall(is_max() ? CollectiveOp::kAllReduceMax : CollectiveOp::kAllReduceSum, program,
                   range_, program.precision.gradient, axes_);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return [&collective = binder.collective(axes_), max = is_max(),
            data = binder.flat(GradientBuffer(how_.windowed), range_)](Exec&) {
      max ? collective.AllReduceMax(data) : collective.AllReduceSum(data);
    };
  }

 private:
  bool is_max() const { return how_.reduction == Reduction::kMax; }

  FlatRange range_;
  AxisSet axes_;
  How how_;
};

// Leaves each rank the sums of its shard, or all sums if there are no shards. If gradients are sent
// in another dtype, they are rounded to it before they are sent, and the sums are rounded again.
class ReduceBucketOp final : public Op {
 public:
  ReduceBucketOp(const Bucket& bucket, bool rounded) : bucket_(bucket), rounded_(rounded) {}
  absl::string_view name() const override {
    return bucket_.zero_axes.empty() ? "reduce_bucket" : "scatter_bucket";
  }
  AxisSet group() const override { return bucket_.reduce_axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(bucket_.flat, bucket_.reduce_axes); }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(bucket_.flat.elements) * double(SizeOf(program.precision.reduced))};
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    const bool whole = bucket_.zero_axes.empty();
    return OneCall(whole ? CollectiveOp::kAllReduceSum : CollectiveOp::kReduceScatterSum, program,
                   bucket_.flat, rounded_ ? program.precision.reduced : program.precision.gradient,
                   bucket_.reduce_axes);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    const FlatBuffer gradients = GradientBuffer(bucket_.windowed);
    if (!rounded_) return Sum(binder, gradients);
    const FlatRange& kept = bucket_.zero_axes.empty() ? bucket_.flat : bucket_.own;
    const auto cast = [&](FlatBuffer from, FlatBuffer to, const FlatRange& range) {
      return binder.Kernel(CastArgs{.x = binder.flat(from, range), .y = binder.flat(to, range)});
    };
    return [round = cast(gradients, FlatBuffer::kReduced, bucket_.flat),
            sum = Sum(binder, FlatBuffer::kReduced),
            widen = cast(FlatBuffer::kReduced, gradients, kept)](Exec& exec) {
      round(exec);
      sum(exec);
      widen(exec);
    };
  }

 private:
  Call Sum(const Binder& binder, FlatBuffer buffer) const {
    Collective& collective = binder.collective(bucket_.reduce_axes);
    const Tensor all = binder.flat(buffer, bucket_.flat);
    if (bucket_.zero_axes.empty()) return [=, &collective](Exec&) { collective.AllReduceSum(all); };
    const Tensor own = binder.flat(buffer, bucket_.own);
    return [=, &collective](Exec&) { collective.ReduceScatterSum(all, own); };
  }

  Bucket bucket_;
  bool rounded_;
};

// Gathers what each rank has of the bucket in buffer `own` into buffer `all`.
class GatherBucketOp final : public Op {
 public:
  GatherBucketOp(const char* name, const Bucket& bucket, FlatBuffer own, FlatBuffer all)
      : name_(name), bucket_(bucket), own_(own), all_(all) {}
  absl::string_view name() const override { return name_; }
  AxisSet group() const override { return bucket_.zero_axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(bucket_.flat, bucket_.zero_axes); }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(bucket_.flat.elements) * double(SizeOf(program.dtype(all_)))};
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return OneCall(CollectiveOp::kAllGather, program, bucket_.flat, program.dtype(all_),
                   bucket_.zero_axes);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return
        [&collective = binder.collective(bucket_.zero_axes), all = binder.flat(all_, bucket_.flat),
         own = binder.flat(own_, bucket_.own)](Exec&) { collective.AllGather(own, all); };
  }

 private:
  const char* name_;
  Bucket bucket_;
  FlatBuffer own_, all_;
};

// Losses, the squared gradient norm and what pairs give are adjacent in memory.
class ReduceScalarsOp final : public Op {
 public:
  explicit ReduceScalarsOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "reduce_scalars"; }
  AxisSet group() const override { return axes_; }
  bool has_effect() const override { return true; }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return OneCall(CollectiveOp::kAllReduceSum, program, {.elements = kScalars}, DType::kF64,
                   axes_);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    static_assert(offsetof(StepState, auxiliary_loss) ==
                  offsetof(StepState, loss) + sizeof(double));
    static_assert(offsetof(StepState, grad_norm_squared) ==
                  offsetof(StepState, loss) + 2 * sizeof(double));
    static_assert(offsetof(StepState, reward_accuracy) ==
                  offsetof(StepState, loss) + (kScalars - 1) * sizeof(double));
    Tensor scalars;
    scalars.data = &binder.step_state()->loss;
    scalars.dtype = DType::kF64;
    scalars.shape = {kScalars};
    return [&collective = binder.collective(axes_), scalars](Exec&) {
      collective.AllReduceSum(scalars);
    };
  }

 private:
  static constexpr int64_t kScalars = 7;
  AxisSet axes_;
};

class WaitOp final : public Op {
 public:
  absl::string_view name() const override { return "wait"; }
  bool is_capturable() const override { return false; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.WaitForCommunication();
  }
};

// The sums over micro-batches are complete at the end of the last list of a step's backward, and
// are reduced there. The gradients of a window are reduced as soon as the window's list has written
// them.
Instance OnCommunicationStream(std::shared_ptr<const Op> op, const Bucket& bucket) {
  return {.op = std::move(op),
          .list = bucket.list,
          .stream = Stream::kCommunication,
          .when = bucket.windowed ? When::kAlways : When::kLastMicroBatch,
          .label = "grad_sync"};
}

}  // namespace

Instance ReduceGradients(const Bucket& bucket, const FlatRange& gradients, AxisSet axes,
                         Reduction reduction) {
  const ReduceGradientsOp::How how{.reduction = reduction, .windowed = bucket.windowed};
  return OnCommunicationStream(std::make_shared<ReduceGradientsOp>(gradients, axes, how), bucket);
}

Instance ReduceBucket(const Program& program, const Bucket& bucket) {
  const bool rounded = program.precision.reduced != program.precision.gradient;
  return OnCommunicationStream(std::make_shared<ReduceBucketOp>(bucket, rounded), bucket);
}

void ReduceTied(Recorder& recorder, const FlatRange& gradients) {
  recorder.EmitEffect(
      std::make_shared<ReduceGradientsOp>(gradients, Axis::kEnds, ReduceGradientsOp::How{}),
      List::kOptimizer);
}

Instance GatherBucket(List list, Stream stream, const Bucket& bucket) {
  return {.op = std::make_shared<GatherBucketOp>("gather_parameters", bucket, FlatBuffer::kCompute,
                                                 FlatBuffer::kCompute),
          .list = list,
          .block = bucket.first_block,
          .stream = stream,
          .label = "grad_sync"};
}

void GatherDirections(Recorder& recorder, const Bucket& bucket) {
  const FlatBuffer all = GradientBuffer(bucket.windowed);
  recorder.EmitEffect(
      std::make_shared<GatherBucketOp>("gather_directions", bucket, FlatBuffer::kGradient, all),
      List::kOptimizer);
}

void ReduceScalars(Recorder& recorder, AxisSet axes) {
  if (axes.empty()) return;
  recorder.EmitEffect(std::make_shared<ReduceScalarsOp>(axes), List::kOptimizer);
}

void WaitForCommunication(Recorder& recorder, List list) {
  recorder.EmitEffect(std::make_shared<WaitOp>(), list);
}

}  // namespace trainyard::ops
