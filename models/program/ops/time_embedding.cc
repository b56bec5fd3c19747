#include "kernels/embeddings/time_embedding.h"

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Times are i32 [B].
class TimeEmbeddingOp final : public NamedOp<TimeEmbeddingOp> {
 public:
  enum Input { kTime, kInputs };
  enum Output { kY, kOutputs };
  absl::string_view name() const override { return "time_embedding"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(TimeEmbeddingArgs{.time = binder.tensor(instance.inputs[kTime]),
                                           .y = binder.tensor(instance.outputs[kY])});
  }
};

}  // namespace

Value TimeEmbedding(Recorder& recorder, Value time, int64_t width) {
  const ValueInfo info = recorder.info(time);
  CHECK(info.dtype == DType::kI32) << "time_embedding: of " << info;
  return recorder.Emit(std::make_shared<TimeEmbeddingOp>(), {time},
                       {{.shape = {info.shape.elements(), width},
                         .dtype = recorder.precision().activation,
                         .name = "time"}})[0];
}

}  // namespace trainyard::ops
