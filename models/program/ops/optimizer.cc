// Gradient norm and clipping: ops on the gradients. The updates are in models/program/optimizer.
#include "absl/strings/str_cat.h"
#include "kernels/optimizer/clip.h"
#include "kernels/sums/sum_squares.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class SumSquaresOp final : public Op {
 public:
  explicit SumSquaresOp(const FlatRange& range) : range_(range) {}
  absl::string_view name() const override { return "sum_squares"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", range_.offset, "+", range_.elements);
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(range_.elements) * double(SizeOf(program.precision.gradient))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(SumSquaresArgs{.x = binder.flat(FlatBuffer::kGradient, range_),
                                        .state = binder.step_state()});
  }

 private:
  FlatRange range_;
};

class ClipOp final : public Op {
 public:
  absl::string_view name() const override { return "clip"; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(ClipArgs{.state = binder.step_state()});
  }
};

}  // namespace

void SumSquares(Recorder& recorder, const FlatRange& gradients) {
  recorder.EmitEffect(std::make_shared<SumSquaresOp>(gradients), List::kOptimizer);
}

void Clip(Recorder& recorder) { recorder.EmitEffect(std::make_shared<ClipOp>(), List::kOptimizer); }

}  // namespace trainyard::ops
