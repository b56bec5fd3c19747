// The loss of pairs of answers. Its forward computes the gradient, too, which takes as little time
// as the loss: a number for each token.
#include "absl/strings/str_cat.h"
#include "kernels/loss/preference.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class PreferenceLossOp final : public NamedOp<PreferenceLossOp> {
 public:
  enum Input { kLogProbs, kTargets, kSides, kReference, kInputs };
  enum Output { kSums, kDlogProbs, kOutputs };
  // The tokens of a sample are divided over `axes`. `adds`: as PreferenceLossArgs.
  PreferenceLossOp(const PreferenceOptions& options, AxisSet axes, bool adds)
      : options_(options), axes_(axes), adds_(adds) {}
  absl::string_view name() const override { return "preference_loss"; }
  AxisSet group() const override { return axes_; }
  bool is_loss() const override { return true; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("method=", int(options_.method), " beta=", options_.beta,
                        adds_ ? "" : " adds nothing");
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (axes_.empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[kSums]).bytes()),
                    program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](Input input) { return binder.tensor(instance.inputs[input]); };
    const Tensor sums = binder.tensor(instance.outputs[kSums]);
    Collective* const collective = axes_.empty() ? nullptr : &binder.collective(axes_);
    Call sum = binder.Kernel(PreferenceSumsArgs{.log_probs = in(kLogProbs),
                                                .targets = in(kTargets),
                                                .sides = in(kSides),
                                                .reference = in(kReference),
                                                .sums = sums});
    Call loss = binder.Kernel(
        PreferenceLossArgs{.sums = sums,
                           .targets = in(kTargets),
                           .sides = in(kSides),
                           .method = options_.method,
                           .beta = options_.beta,
                           .adds = adds_,
                           .state = binder.step_state(),
                           .dlog_probs = binder.tensor(instance.outputs[kDlogProbs])});
    return [collective, sums, sum = std::move(sum), loss = std::move(loss)](Exec& exec) {
      sum(exec);
      if (collective != nullptr) collective->AllReduceSum(sums);
      loss(exec);
    };
  }
  std::vector<Value> Backward(Recorder&, const Instance& instance,
                              std::span<const Value>) const override {
    return {instance.outputs[kDlogProbs], {}, {}, {}};
  }

 private:
  const PreferenceOptions options_;
  const AxisSet axes_;
  const bool adds_;
};

}  // namespace

void PreferenceLoss(Recorder& recorder, const PreferenceOperands& of,
                    const PreferenceOptions& options) {
  const ValueInfo log_probs = recorder.info(of.log_probs);
  const Mesh& mesh = recorder.mesh();
  const Program& program = recorder.program();
  const AxisSet axes = AxisSet(Axis::kContext) & mesh.active();
  const bool adds = mesh.coordinate(kTensorAxes | Axis::kContext) == 0;
  const std::vector<Value> outputs = recorder.Emit(
      std::make_shared<PreferenceLossOp>(options, axes, adds),
      {of.log_probs, of.targets, of.sides, of.reference},
      {Recorder::Output::Memory("sums", {program.micro_batch, PreferenceSides(program.sequence), 3},
                                DType::kF64),
       Recorder::Output::Memory("dlog_probs", log_probs.shape, log_probs.dtype)});
  recorder.KeepOutput(kPreferenceSums, outputs[PreferenceLossOp::kSums]);
}

}  // namespace trainyard::ops
