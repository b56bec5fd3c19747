// Initial parameters and compute copies: ops on the flat buffers.
#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/fill.h"
#include "kernels/elementwise/random_values.h"
#include "kernels/state_space/state_init.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

std::string Text(const FlatRange& range) {
  return absl::StrCat("flat=", range.offset, "+", range.elements);
}

class FillOp final : public Op {
 public:
  FillOp(FlatBuffer buffer, const FlatRange& range, double value)
      : buffer_(buffer), range_(range), value_(value) {}
  absl::string_view name() const override { return "fill"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(Text(range_), " buffer=", int(buffer_), " value=", value_);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(FillArgs{.y = binder.flat(buffer_, range_), .value = value_});
  }

 private:
  FlatBuffer buffer_;
  FlatRange range_;
  double value_;
};

// A box and the place of its initial values: that of the master weights, or kFrozen if the
// parameter is frozen.
struct PlacedBox : ParameterBox {
  PlacedBox(const Program& program, const ParameterBox& box)
      : ParameterBox(box),
        place(box.frozen ? Program::MasterPlace{FlatBuffer::kFrozen, box.flat}
                         : program.PlaceOfMaster(box.flat)) {}
  Program::MasterPlace place;
};
Tensor ValuesOf(const Binder& binder, const PlacedBox& box) {
  return box.frozen ? binder.frozen(box.place.buffer, box.place.range, *box.frozen)
                    : binder.flat(box.place.buffer, box.place.range);
}

std::string Frozen(const ParameterBox& box) {
  return box.frozen ? absl::StrCat(" frozen=", trainyard::Name(*box.frozen)) : "";
}

class FillFrozenOp final : public Op {
 public:
  FillFrozenOp(const PlacedBox& box, double value) : box_(box), value_(value) {}
  absl::string_view name() const override { return "fill"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(Text(box_.flat), Frozen(box_), " value=", value_);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(FillArgs{.y = ValuesOf(binder, box_), .value = value_});
  }

 private:
  PlacedBox box_;
  double value_;
};

Distribution DistributionOf(const Init& init) {
  if (init.kind == Init::Kind::kBytes) return Distribution::kBytes;
  return init.kind == Init::Kind::kUniform ? Distribution::kUniform : Distribution::kNormal;
}

// Values depend only on the parameter's global name and each element's global index.
class RandomValuesOp final : public Op {
 public:
  explicit RandomValuesOp(const PlacedBox& box) : box_(box) {}
  absl::string_view name() const override { return "random_values"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat(box_.name, " ", Text(box_.flat), Frozen(box_),
                        " uniform=", box_.init.kind == Init::Kind::kUniform,
                        " scale=", box_.init.scale);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    const bool matrix = box_.shape.rank() > 1;
    Tensor y = ValuesOf(binder, box_);
    y.shape = box_.shape;
    return binder.Kernel(RandomValuesArgs{.y = y,
                                          .stream = HashName(box_.name.c_str()),
                                          .distribution = DistributionOf(box_.init),
                                          .scale = box_.init.scale,
                                          .global_columns = box_.global_shape.back(),
                                          .state = binder.step_state(),
                                          .first_row = matrix ? box_.offset[0] : 0,
                                          .first_column = box_.offset.back()});
  }

 private:
  PlacedBox box_;
};

class StateInitOp final : public Op {
 public:
  explicit StateInitOp(const PlacedBox& box) : box_(box) {}
  absl::string_view name() const override { return "state_init"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    const StepRange& steps = box_.init.steps;
    return absl::StrCat(box_.name, " ", Text(box_.flat), Frozen(box_), " least=", steps.least,
                        " most=", steps.most, " floor=", steps.floor);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    const bool steps = box_.init.kind == Init::Kind::kTimeStep;
    return binder.Kernel(
        StateInitArgs{.y = ValuesOf(binder, box_),
                      .kind = steps ? StateInitKind::kSteps : StateInitKind::kDecay,
                      .first = box_.offset[0],
                      .steps = box_.init.steps,
                      .stream = HashName(box_.name.c_str()),
                      .state = binder.step_state()});
  }

 private:
  PlacedBox box_;
};

class CastOp final : public Op {
 public:
  CastOp(const FlatRange& shard, const FlatRange& own) : shard_(shard), own_(own) {}
  absl::string_view name() const override { return "cast"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return Text(own_); }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(CastArgs{.x = binder.flat(FlatBuffer::kMaster, shard_),
                                  .y = binder.flat(FlatBuffer::kCompute, own_)});
  }

 private:
  FlatRange shard_, own_;
};

}  // namespace

void InitializeBox(Recorder& recorder, const ParameterBox& parameter) {
  const PlacedBox box(recorder.program(), parameter);
  if (box.init.kind == Init::Kind::kNormal || box.init.kind == Init::Kind::kUniform ||
      box.init.kind == Init::Kind::kBytes) {
    recorder.EmitEffect(std::make_shared<RandomValuesOp>(box), List::kInit);
  } else if (box.init.kind == Init::Kind::kLogIndex || box.init.kind == Init::Kind::kTimeStep) {
    recorder.EmitEffect(std::make_shared<StateInitOp>(box), List::kInit);
  } else {
    const double value = box.init.kind == Init::Kind::kOnes ? 1 : box.init.scale;
    if (!box.frozen) return FillFlat(recorder, box.place.buffer, box.place.range, value);
    recorder.EmitEffect(std::make_shared<FillFrozenOp>(box, value), List::kInit);
  }
}

void FillFlat(Recorder& recorder, FlatBuffer buffer, const FlatRange& range, double value) {
  recorder.EmitEffect(std::make_shared<FillOp>(buffer, range, value), List::kInit);
}

void CastToCompute(Recorder& recorder, const FlatRange& shard, const FlatRange& own) {
  recorder.EmitEffect(std::make_shared<CastOp>(shard, own), List::kPrepare);
}

}  // namespace trainyard::ops
