#include "kernels/cross_entropy.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Inputs: logits, targets, lse. Output: dlogits, in the compute dtype.
class CrossEntropyBackwardOp final : public Op {
 public:
  explicit CrossEntropyBackwardOp(const VocabSlice& slice) : slice_(slice) {}
  absl::string_view name() const override { return "cross_entropy_backward"; }
  bool MayAlias(int output, int input) const override { return output == 0 && input == 0; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(CrossEntropyBackwardArgs{.logits = binder.tensor(instance.inputs[0]),
                                                  .targets = binder.tensor(instance.inputs[1]),
                                                  .lse = binder.tensor(instance.inputs[2]),
                                                  .state = binder.step_state(),
                                                  .dlogits = binder.tensor(instance.outputs[0]),
                                                  .slice = slice_});
  }

 private:
  VocabSlice slice_;
};

Value LogitsGradient(Recorder& recorder, const Instance& instance, const VocabSlice& slice) {
  const Value logits = instance.inputs[0], targets = instance.inputs[1];
  return recorder.Emit(std::make_shared<CrossEntropyBackwardOp>(slice),
                       {logits, targets, instance.outputs[0]},
                       {{.shape = recorder.info(logits).shape,
                         .dtype = recorder.precision().compute,
                         .name = "dlogits"}})[0];
}

// Inputs: logits, targets. Output: what the ranks tell each other of their columns.
class StatisticsOp final : public Op {
 public:
  explicit StatisticsOp(const VocabSlice& slice) : slice_(slice) {}
  absl::string_view name() const override { return "cross_entropy_statistics"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(
        CrossEntropyStatisticsArgs{.logits = binder.tensor(instance.inputs[0]),
                                   .targets = binder.tensor(instance.inputs[1]),
                                   .slice = slice_,
                                   .statistics = binder.tensor(instance.outputs[0])});
  }

 private:
  VocabSlice slice_;
};

// Inputs: logits, targets, the statistics of all ranks. Output: lse.
class CombineOp final : public Op {
 public:
  CombineOp(const VocabSlice& slice, int64_t loss_begin, int64_t loss_rows)
      : slice_(slice), loss_begin_(loss_begin), loss_rows_(loss_rows) {}
  absl::string_view name() const override { return "cross_entropy_combine"; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(CrossEntropyCombineArgs{.statistics = binder.tensor(instance.inputs[2]),
                                                 .targets = binder.tensor(instance.inputs[1]),
                                                 .loss_begin = loss_begin_,
                                                 .loss_rows = loss_rows_,
                                                 .lse = binder.tensor(instance.outputs[0]),
                                                 .state = binder.step_state()});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value>) const override {
    return {LogitsGradient(recorder, instance, slice_), {}, {}};
  }

 private:
  VocabSlice slice_;
  int64_t loss_begin_, loss_rows_;
};

// Inputs: logits, targets. Output: lse.
class CrossEntropyOp final : public Op {
 public:
  absl::string_view name() const override { return "cross_entropy"; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(CrossEntropyForwardArgs{.logits = binder.tensor(instance.inputs[0]),
                                                 .targets = binder.tensor(instance.inputs[1]),
                                                 .lse = binder.tensor(instance.outputs[0]),
                                                 .state = binder.step_state()});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value>) const override {
    return {LogitsGradient(recorder, instance, VocabSlice{}), {}};
  }
};

}  // namespace

void CrossEntropy(Recorder& recorder, Value logits, Value targets) {
  const ValueInfo info = recorder.info(logits), t = recorder.info(targets);
  CHECK(info.shape.rank() == 2 && t.shape.elements() == info.shape[0] && t.dtype == DType::kI32)
      << "cross_entropy: " << info << " against " << t;
  const Recorder::Output lse{
      .shape = {info.shape[0]}, .dtype = info.dtype, .name = "lse", .differentiable = false};
  const Mesh& mesh = recorder.mesh();
  const int64_t ranks = mesh.size(kTensorAxes), rank = mesh.coordinate(kTensorAxes);
  if (ranks == 1) {
    recorder.Emit(std::make_shared<CrossEntropyOp>(), {logits, targets}, {lse});
    return;
  }
  const int64_t rows = info.shape[0], columns = info.shape[1];
  const VocabSlice slice{.first = rank * columns, .vocab = ranks * columns};
  const Value mine = recorder.Emit(std::make_shared<StatisticsOp>(slice), {logits, targets},
                                   {{.shape = {1, rows, 3},
                                     .dtype = info.dtype,
                                     .name = "statistics",
                                     .differentiable = false}})[0];
  const Value all = AllGather(recorder, mine, kTensorAxes);
  // Each rank adds its share of the rows.
  const int64_t begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
  recorder.Emit(std::make_shared<CombineOp>(slice, begin, end - begin), {logits, targets, all},
                {lse});
}

}  // namespace trainyard::ops
