// Gradient norm, clipping and AdamW: ops on the flat buffers.
#include "absl/strings/str_cat.h"
#include "kernels/adamw.h"
#include "kernels/clip.h"
#include "kernels/sum_squares.h"
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

class AdamWOp final : public Op {
 public:
  explicit AdamWOp(const AdamWRange& range) : range_(range) {}
  absl::string_view name() const override { return "adamw"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", range_.flat.offset, "+", range_.flat.elements,
                        " shard=", range_.shard.offset, " beta1=", range_.beta1,
                        " beta2=", range_.beta2, " eps=", range_.epsilon,
                        " weight_decay=", range_.weight_decay);
  }
  // Master and moments are read and written, the gradient read, the copy written.
  Cost CostOf(const Program& program, const Instance&) const override {
    const Precision& p = program.precision;
    const size_t bytes = 2 * SizeOf(p.master) + 4 * SizeOf(p.moment) + SizeOf(p.gradient) +
                         (range_.writes_compute ? SizeOf(p.weight) : 0);
    return {.bytes = double(range_.flat.elements) * double(bytes)};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    AdamWArgs args{.master = binder.flat(FlatBuffer::kMaster, range_.shard),
                   .m = binder.flat(FlatBuffer::kFirstMoment, range_.shard),
                   .v = binder.flat(FlatBuffer::kSecondMoment, range_.shard),
                   .grad = binder.flat(FlatBuffer::kGradient, range_.flat),
                   .beta1 = range_.beta1,
                   .beta2 = range_.beta2,
                   .eps = range_.epsilon,
                   .weight_decay = range_.weight_decay,
                   .state = binder.step_state()};
    if (range_.writes_compute) args.compute = binder.flat(FlatBuffer::kCompute, range_.flat);
    return binder.Kernel(args);
  }

 private:
  AdamWRange range_;
};

}  // namespace

void SumSquares(Recorder& recorder, const FlatRange& gradients) {
  recorder.EmitEffect(std::make_shared<SumSquaresOp>(gradients), List::kOptimizer);
}

void Clip(Recorder& recorder) { recorder.EmitEffect(std::make_shared<ClipOp>(), List::kOptimizer); }

void AdamW(Recorder& recorder, const AdamWRange& range) {
  recorder.EmitEffect(std::make_shared<AdamWOp>(range), List::kOptimizer);
}

}  // namespace trainyard::ops
