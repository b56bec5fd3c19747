#include "models/language_model.h"

#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

// In validations: the logits of the rows that the host names. Tensor ranks gather each other's
// rows.
void KeepLastLogits(Recorder& recorder, const Projection& head) {
  recorder.set_when(When::kValidation);
  const Value rows = recorder.Input(kLastRows, {LastRowsOf(recorder.program().micro_batch)},
                                    DType::kI32, recorder.info(head.x).varying);
  const Value last = ops::TakeRows(recorder, head.x, rows);
  recorder.KeepOutput("logits", ops::GatherLogits(recorder, last, head.weight, kTensorAxes));
  recorder.set_when(When::kAlways);
}

}  // namespace

std::vector<InputSpec> TokenInputs(int64_t vocab) {
  return {{.name = "tokens", .limit = vocab}, {.name = "targets", .limit = vocab}};
}

Carried LanguageModel::Start(Recorder& recorder) const {
  return Embed(recorder, recorder.Read("tokens"));
}

void LanguageModel::Loss(Recorder& recorder, const Carried& carried) const {
  const Projection head = Head(recorder, carried);
  if (recorder.program().last_logits) KeepLastLogits(recorder, head);
  const Value targets = recorder.Read("targets");
  if (!recorder.preference()) {
    return ops::LinearCrossEntropy(recorder, head.x, head.weight, targets, kTensorAxes);
  }
  ops::PreferenceLoss(
      recorder,
      {.log_probs = ops::LinearLogProbs(recorder, head.x, head.weight, targets, kTensorAxes),
       .targets = targets,
       .sides = recorder.Read(kPreferenceSides),
       .reference = recorder.Read(kReferenceLogProbs)},
      *recorder.preference());
}

void LanguageModel::KeepOutputs(Recorder& recorder, const Carried& carried) const {
  const Projection head = Head(recorder, carried);
  recorder.KeepOutput("logits", ops::GatherLogits(recorder, head.x, head.weight, kTensorAxes));
}

}  // namespace trainyard
