#include "models/language_model.h"

#include "models/program/ops/ops.h"

namespace trainyard {

std::vector<InputSpec> TokenInputs(int64_t vocab) {
  return {{.name = "tokens", .limit = vocab}, {.name = "targets", .limit = vocab}};
}

Carried LanguageModel::Start(Recorder& recorder) const {
  return Embed(recorder, recorder.Read("tokens"));
}

void LanguageModel::Loss(Recorder& recorder, const Carried& carried) const {
  const Projection head = Head(recorder, carried);
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
