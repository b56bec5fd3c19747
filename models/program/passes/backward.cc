#include "absl/strings/str_cat.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void RecordBackward(Recorder& recorder) {
  const Program& program = recorder.program();
  CHECK(program.training) << "backward of a program recorded for inference";
  const size_t num_forward = program.instances.size();
  std::vector<Value> grad_of(program.values.size());  // By id of forward values.

  const auto accumulate = [&](const Op& op, Value input, Value grad) {
    const ValueInfo value = program.info(input), g = program.info(grad);
    // The value depends on no trainable parameter. Instances that compute only this gradient are
    // dead.
    if (!value.differentiable) return;
    CHECK(value.kind == ValueKind::kActivation)
        << op.name() << " returned a gradient for " << value;
    CHECK(g.shape == value.shape &&
          (g.dtype == recorder.precision().activation || g.dtype == value.dtype))
        << op.name() << " returned gradient " << g << " for " << value;
    Value& sum = grad_of[input.id];
    sum = sum.valid() ? ops::Add(recorder, sum, grad) : grad;
  };

  // At a cut of the model, the gradients of the sent values come back from the next chunk.
  for (Chunk& chunk : recorder.mutable_program().chunks) {
    for (Crossing& sent : chunk.sent) {
      if (!program.info(sent.value).differentiable) continue;
      const bool several = chunk.sent.size() > 1;
      sent.gradient =
          recorder.Leaf(sent.value, several ? absl::StrCat("received gradient of ", sent.name)
                                            : "received gradient");
      grad_of[size_t(sent.value.id)] = sent.gradient;
    }
  }
  grad_of.resize(program.values.size());

  for (size_t i = num_forward; i-- > 0;) {
    const Instance instance = program.instances[i];  // A copy: recording moves the originals.
    if (instance.list != List::kForward) continue;
    std::vector<Value> output_grads;
    bool reached = instance.op->is_loss();
    for (Value output : instance.outputs) {
      output_grads.push_back(grad_of[output.id]);
      reached |= output_grads.back().valid();
    }
    if (!reached) continue;
    recorder.set_list(List::kBackwardInput);
    recorder.set_block(instance.block);
    recorder.set_label(instance.label);
    const std::vector<Value> input_grads = instance.op->Backward(recorder, instance, output_grads);
    CHECK(input_grads.size() == instance.inputs.size())
        << instance.op->name() << ": " << input_grads.size() << " gradients for "
        << instance.inputs.size() << " inputs";
    for (size_t j = 0; j < input_grads.size(); ++j) {
      if (input_grads[j].valid()) accumulate(*instance.op, instance.inputs[j], input_grads[j]);
    }
  }
  ops::RecordHistories(recorder);
  for (Chunk& chunk : recorder.mutable_program().chunks) {
    for (Crossing& received : chunk.received) {
      received.gradient = grad_of[size_t(received.value.id)];
      CHECK(received.gradient.valid() || !program.info(received.value).differentiable)
          << program.info(received.value) << " crosses a cut to where it has no gradient";
    }
  }
}

}  // namespace trainyard
