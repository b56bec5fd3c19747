#include "kernels/dropout.h"

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

struct Rows {
  SequencePart part;
  int64_t first;
};

// The backward of this op is the same op on the gradient: what is kept follows from the place
// alone.
class DropoutOp final : public NamedOp<DropoutOp> {
 public:
  enum Input { kX, kSamples, kInputs };
  enum Output { kY, kOutputs };
  DropoutOp(const DropoutPlace& place, const Rows& rows) : place_(place), rows_(rows) {}
  absl::string_view name() const override { return "dropout"; }
  std::string attributes() const override {
    return absl::StrCat("probability=", place_.probability, " stream=", absl::Hex(place_.stream));
  }
  bool MayAlias(int /*output*/, int input) const override { return input == kX; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(DropoutArgs{.x = binder.tensor(instance.inputs[kX]),
                                     .samples = binder.tensor(instance.inputs[kSamples]),
                                     .part = rows_.part,
                                     .first_row = rows_.first,
                                     .place = place_,
                                     .state = binder.step_state(),
                                     .y = binder.tensor(instance.outputs[kY])});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    const Value dx = recorder.Emit(
        std::make_shared<DropoutOp>(place_, rows_), {output_grads[kY], instance.inputs[kSamples]},
        {{.shape = info.shape, .dtype = info.dtype, .name = "undropped"}})[0];
    return {dx, {}};
  }

 private:
  const DropoutPlace place_;
  const Rows rows_;
};

}  // namespace

DropoutPlace DropoutAt(const Recorder& recorder, double probability, absl::string_view what) {
  return {.probability = probability,
          .stream = RandomBits(HashName("dropout"), HashName(std::string(what).c_str()),
                               uint64_t(recorder.block()))};
}

Value Dropout(Recorder& recorder, Value x, double probability, absl::string_view what) {
  if (probability == 0 || !recorder.program().training) return x;
  const ValueInfo info = recorder.info(x);
  const Mesh& mesh = recorder.mesh();
  const Rows rows{.part = recorder.part(),
                  .first = mesh.coordinate(kTensorAxes) * info.shape.rows()};
  return recorder.Emit(std::make_shared<DropoutOp>(DropoutAt(recorder, probability, what), rows),
                       {x, recorder.Read(kSampleNumbers)},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "dropped"}})[0];
}

}  // namespace trainyard::ops
