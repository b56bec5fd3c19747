#include "kernels/embeddings/embedding.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class EmbeddingBackwardOp final : public NamedOp<EmbeddingBackwardOp> {
 public:
  enum Input { kDy, kTokens, kInputs };
  enum Output { kDtable, kOutputs };
  EmbeddingBackwardOp(const VocabSlice& slice, double scale, int64_t padding)
      : slice_(slice), scale_(scale), padding_(padding) {}
  absl::string_view name() const override { return "embedding_backward"; }
  std::string attributes() const override {
    return padding_ < 0 ? "" : absl::StrCat("padding=", padding_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(EmbeddingBackwardArgs{.dy = binder.tensor(instance.inputs[kDy]),
                                               .tokens = binder.tensor(instance.inputs[kTokens]),
                                               .dtable = binder.tensor(instance.outputs[kDtable]),
                                               .write = binder.write(instance.outputs[kDtable]),
                                               .slice = slice_,
                                               .scale = scale_,
                                               .padding = padding_});
  }

 private:
  VocabSlice slice_;
  double scale_;
  int64_t padding_;
};

class EmbeddingOp final : public NamedOp<EmbeddingOp> {
 public:
  enum Input { kTable, kTokens, kInputs };
  enum Output { kY, kOutputs };
  EmbeddingOp(const VocabSlice& slice, double scale, int64_t padding)
      : slice_(slice), scale_(scale), padding_(padding) {}
  absl::string_view name() const override { return "embedding"; }
  std::string attributes() const override {
    return scale_ == 1 ? "" : absl::StrCat("scale=", scale_);
  }
  // Counts the rows that are read, not the whole table.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return {.bytes = 2.0 * double(program.info(instance.outputs[kY]).bytes()) +
                     double(program.info(instance.inputs[kTokens]).bytes())};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(EmbeddingForwardArgs{.table = binder.tensor(instance.inputs[kTable]),
                                              .tokens = binder.tensor(instance.inputs[kTokens]),
                                              .y = binder.tensor(instance.outputs[kY]),
                                              .slice = slice_,
                                              .scale = scale_});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    recorder.Emit(std::make_shared<EmbeddingBackwardOp>(slice_, scale_, padding_),
                  {output_grads[kY], instance.inputs[kTokens]},
                  {Recorder::Output::Into(recorder.Gradient(instance.inputs[kTable]))});
    return {{}, {}};
  }

 private:
  VocabSlice slice_;
  double scale_;
  int64_t padding_;
};

}  // namespace

Value Embedding(Recorder& recorder, Value table, Value tokens, double scale, int64_t padding) {
  const ValueInfo t = recorder.info(table), i = recorder.info(tokens);
  CHECK(t.shape.rank() == 2 && i.dtype == DType::kI32) << "embedding: " << t << " by " << i;
  const ParameterSpec& spec = recorder.program().storage(table).parameters.front();
  const VocabSlice slice =
      SliceOf(spec, recorder.mesh().coordinate(spec.shard.axes) * t.shape[0], t.shape[0]);
  return recorder.Emit(std::make_shared<EmbeddingOp>(slice, scale, padding), {table, tokens},
                       {{.shape = {i.shape.elements(), t.shape[1]},
                         .dtype = recorder.precision().activation,
                         .name = "rows"}})[0];
}

}  // namespace trainyard::ops
