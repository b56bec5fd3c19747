#include "kernels/attention/positions.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Has the tokens as an input only for their `varying`: positions are the same on every data rank,
// but the gradients of what is looked up by position vary as those of the tokens. The second input,
// if any, says where documents begin, and makes positions those in documents.
class PositionsOp final : public NamedOp<PositionsOp> {
 public:
  enum Input { kTokens, kBegins, kInputs };
  enum Output { kPositions, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  PositionsOp(const SequencePart& part, int64_t first_row) : part_(part), first_row_(first_row) {}
  absl::string_view name() const override { return "positions"; }
  std::string attributes() const override {
    return absl::StrCat("rows=", part_.rows, " context=", part_.rank, "/", part_.ranks,
                        " first_row=", first_row_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    PositionsArgs args{
        .y = binder.tensor(instance.outputs[kPositions]), .part = part_, .first_row = first_row_};
    if (instance.inputs.size() > kBegins) {
      args.document_begins = binder.tensor(instance.inputs[kBegins]);
    }
    return binder.Kernel(args);
  }

 private:
  SequencePart part_;
  int64_t first_row_;
};

}  // namespace

Value CachePositions(Recorder& recorder) {
  return recorder.Read(InputSpec{.name = kCachePositions, .limit = recorder.program().cache});
}

Value Positions(Recorder& recorder, Value tokens) {
  const Mesh& mesh = recorder.mesh();
  const int64_t rows = recorder.info(tokens).shape.elements() / mesh.size(kTensorAxes);
  if (recorder.program().cache > 0) {
    if (mesh.size(kTensorAxes) == 1) return CachePositions(recorder);
    return recorder.Input(kOwnCachePositions, {rows}, DType::kI32, recorder.info(tokens).varying);
  }
  const auto op =
      std::make_shared<PositionsOp>(recorder.part(), mesh.coordinate(kTensorAxes) * rows);
  std::vector<Value> inputs = {tokens};
  if (recorder.program().restart_positions) inputs.push_back(recorder.Read(kDocumentBegins));
  return recorder.Emit(
      op, inputs,
      {{.shape = {rows}, .dtype = DType::kI32, .name = "positions", .differentiable = false}})[0];
}

Value DocumentPositions(Recorder& recorder) {
  if (!recorder.Declares(kDocumentBegins)) return {};
  const Value begins = recorder.Read(kDocumentBegins);
  const auto op = std::make_shared<PositionsOp>(recorder.part(), /*first_row=*/0);
  return recorder.Emit(op, {begins, begins},
                       {{.shape = {recorder.info(begins).shape.elements()},
                         .dtype = DType::kI32,
                         .name = "document_positions",
                         .differentiable = false}})[0];
}

}  // namespace trainyard::ops
