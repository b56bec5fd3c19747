#include "kernels/elementwise/dropout.h"

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Where x lies among the values of all ranks.
struct Placement {
  SequencePart part;
  int64_t first_row = 0;
  int64_t first_column = 0;
  int64_t columns = 0;  // As DropoutArgs.
};

// The backward of this op is the same op on the gradient: what is kept follows from the place
// alone.
class DropoutOp final : public NamedOp<DropoutOp> {
 public:
  enum Input { kX, kSamples, kInputs };
  enum Output { kY, kOutputs };
  DropoutOp(const DropoutPlace& place, const Placement& placement)
      : place_(place), placement_(placement) {}
  absl::string_view name() const override { return "dropout"; }
  std::string attributes() const override {
    return absl::StrCat("probability=", place_.probability, " stream=", absl::Hex(place_.stream));
  }
  bool MayAlias(int /*output*/, int input) const override { return input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(DropoutArgs{.x = binder.tensor(instance.inputs[kX]),
                                     .samples = binder.tensor(instance.inputs[kSamples]),
                                     .part = placement_.part,
                                     .first_row = placement_.first_row,
                                     .first_column = placement_.first_column,
                                     .columns = placement_.columns,
                                     .place = place_,
                                     .state = binder.step_state(),
                                     .y = binder.tensor(instance.outputs[kY])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    const Value dx =
        recorder.Emit(std::make_shared<DropoutOp>(place_, placement_),
                      {output_grads[kY], instance.inputs[kSamples]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "undropped"}})[0];
    return {dx, {}};
  }

 private:
  const DropoutPlace place_;
  const Placement placement_;
};

Value Drop(Recorder& recorder, Value x, const DropoutPlace& place, const Placement& placement) {
  const ValueInfo info = recorder.info(x);
  return recorder.Emit(std::make_shared<DropoutOp>(place, placement),
                       {x, recorder.Read(kSampleNumbers)},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "dropped"}})[0];
}

}  // namespace

DropoutPlace DropoutAt(const Recorder& recorder, double probability, absl::string_view what) {
  return {.probability = probability,
          .stream = RandomBits(HashName("dropout"), HashName(std::string(what).c_str()),
                               uint64_t(recorder.block()))};
}

Value Dropout(Recorder& recorder, Value x, double probability, absl::string_view what) {
  if (probability == 0 || !recorder.program().training) return x;
  const int64_t rows = recorder.info(x).shape.rows();
  return Drop(
      recorder, x, DropoutAt(recorder, probability, what),
      {.part = recorder.part(), .first_row = recorder.mesh().coordinate(kTensorAxes) * rows});
}

Value DropoutOfColumns(Recorder& recorder, Value x, double probability, absl::string_view what) {
  if (probability == 0 || !recorder.program().training) return x;
  const Mesh& mesh = recorder.mesh();
  const int64_t columns = recorder.info(x).shape.back();
  return Drop(recorder, x, DropoutAt(recorder, probability, what),
              {.part = recorder.part(),
               .first_column = mesh.coordinate(kTensorAxes) * columns,
               .columns = mesh.size(kTensorAxes) * columns});
}

}  // namespace trainyard::ops
