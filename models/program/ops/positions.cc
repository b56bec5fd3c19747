#include "absl/strings/str_cat.h"
#include "kernels/iota.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Takes the tokens as an input for their type alone: positions are alike on every data rank, but
// what is looked up by them has gradients that vary as the tokens do.
class PositionsOp final : public Op {
 public:
  explicit PositionsOp(int64_t sequence) : sequence_(sequence) {}
  absl::string_view name() const override { return "positions"; }
  std::string attributes() const override { return absl::StrCat("sequence=", sequence_); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(IotaArgs{.y = binder.tensor(instance.outputs[0]), .period = sequence_});
  }

 private:
  int64_t sequence_;
};

}  // namespace

Value Positions(Recorder& recorder, Value tokens, int64_t sequence) {
  const ValueInfo info = recorder.info(tokens);
  CHECK(sequence > 0 && info.shape.elements() % sequence == 0)
      << "positions: " << info << " is no whole number of sequences of " << sequence;
  return recorder.Emit(std::make_shared<PositionsOp>(sequence), {tokens},
                       {{.shape = info.shape,
                         .dtype = DType::kI32,
                         .name = "positions",
                         .differentiable = false}})[0];
}

}  // namespace trainyard::ops
