#include "kernels/attention/rope.h"

#include "absl/strings/str_cat.h"
#include "kernels/experts/gather_rows.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// cos and sin are [S, r/2], for r rotated dims of a head.
class RopeTableOp final : public NamedOp<RopeTableOp> {
 public:
  enum Input { kInputs };
  enum Output { kCos, kSin, kOutputs };
  RopeTableOp(const RopeTable& table, const SequencePart& part) : table_(table), part_(part) {}
  absl::string_view name() const override { return "rope_table"; }
  std::string attributes() const override {
    std::string text = absl::StrCat("context=", part_.rank, "/", part_.ranks, " base=", table_.base,
                                    " factor=", table_.factor, ",", table_.low_freq_factor, ",",
                                    table_.high_freq_factor, ",", table_.original_max_seq);
    const YarnRopeScaling& yarn = table_.yarn;
    if (yarn.factor > 0) {
      absl::StrAppend(&text, " yarn=", yarn.factor, ",", yarn.beta_fast, ",", yarn.beta_slow, ",",
                      yarn.original_context);
      if (yarn.magnitude > 0) absl::StrAppend(&text, " magnitude=", yarn.magnitude);
      if (yarn.whole_pairs) absl::StrAppend(&text, " whole_pairs");
    }
    return text;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(RopeTableArgs{.cos = binder.tensor(instance.outputs[kCos]),
                                       .sin = binder.tensor(instance.outputs[kSin]),
                                       .base = table_.base,
                                       .part = part_,
                                       .scaling = {.factor = table_.factor,
                                                   .low_frequency_factor = table_.low_freq_factor,
                                                   .high_frequency_factor = table_.high_freq_factor,
                                                   .original_context = table_.original_max_seq},
                                       .yarn = table_.yarn});
  }

 private:
  RopeTable table_;
  SequencePart part_;
};

// The gradient is the inverse rotation.
class RopeOp final : public NamedOp<RopeOp> {
 public:
  enum Input { kQkv, kCos, kSin, kInputs };
  enum Output { kRotated, kOutputs };
  RopeOp(const Heads& heads, bool inverse) : heads_(heads), inverse_(inverse) {}
  absl::string_view name() const override { return inverse_ ? "rope_backward" : "rope"; }
  bool MayAlias(int output, int input) const override {
    return output == kRotated && input == kQkv;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor cos = binder.tensor(instance.inputs[kCos]);
    return binder.Kernel(RopeArgs{.x = binder.tensor(instance.inputs[kQkv]),
                                  .cos = cos,
                                  .sin = binder.tensor(instance.inputs[kSin]),
                                  .heads = heads_.heads,
                                  .kv_heads = heads_.kv_heads,
                                  .head_dim = heads_.head_dim,
                                  .sequence = cos.shape.rows(),
                                  .y = binder.tensor(instance.outputs[kRotated]),
                                  .inverse = inverse_});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const ValueInfo info = recorder.info(instance.inputs[kQkv]);
    const Value dx =
        recorder.Emit(std::make_shared<RopeOp>(heads_, !inverse_),
                      {output_grads[kRotated], instance.inputs[kCos], instance.inputs[kSin]},
                      {{.shape = info.shape, .dtype = info.dtype, .name = "dqkv"}})[0];
    return {dx, {}, {}};
  }

 private:
  Heads heads_;
  bool inverse_;
};

// A row of the table, which is by position, for each position.
class RowsAtOp final : public NamedOp<RowsAtOp> {
 public:
  enum Input { kTable, kPositions, kInputs };
  enum Output { kRows, kOutputs };
  absl::string_view name() const override { return "rows_at"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GatherRowsArgs{.x = binder.tensor(instance.inputs[kTable]),
                                        .rows = binder.tensor(instance.inputs[kPositions]),
                                        .y = binder.tensor(instance.outputs[kRows])});
  }
};

Recorder::Output HalfRotation(const Recorder& recorder, int64_t rows, int64_t width) {
  return {.shape = {rows, width / 2},
          .dtype = recorder.precision().statistic,
          .name = "rotation",
          .differentiable = false};
}

}  // namespace

Rotation RopeRotation(Recorder& recorder, int64_t sequence, int64_t width, const RopeTable& table) {
  const int64_t cache = recorder.program().cache;
  const SequencePart part = cache > 0 ? SequencePart{.rows = cache} : recorder.part();
  const Recorder::Output half = HalfRotation(recorder, cache > 0 ? cache : sequence, width);
  const std::vector<Value> rotation =
      recorder.EmitConstants(std::make_shared<RopeTableOp>(table, part), {half, half});
  if (cache == 0) return {.cos = rotation[0], .sin = rotation[1]};
  const auto rows_at = [&](Value whole) {
    return recorder.Emit(std::make_shared<RowsAtOp>(), {whole, CachePositions(recorder)},
                         {HalfRotation(recorder, recorder.program().tokens(), width)})[0];
  };
  return {.cos = rows_at(rotation[0]), .sin = rows_at(rotation[1])};
}

Rotation RopeRotation(Recorder& recorder, const Heads& heads, const RopeTable& table) {
  const int64_t dims = table.dims == 0 ? heads.head_dim : table.dims;
  CHECK(dims % 2 == 0 && dims <= heads.head_dim)
      << "rope: " << dims << " rotated dims of " << heads.head_dim;
  return RopeRotation(recorder, heads.sequence, dims, table);
}

Value Rope(Recorder& recorder, Value qkv, const Heads& heads, const Rotation& rotation) {
  const ValueInfo info = recorder.info(qkv);
  CHECK(info.shape.back() == heads.columns())
      << "rope: " << info << " for " << heads.heads << " heads and " << heads.kv_heads
      << " key/value heads of " << heads.head_dim;
  return recorder.Emit(std::make_shared<RopeOp>(heads, /*inverse=*/false),
                       {qkv, rotation.cos, rotation.sin},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "rotated"}})[0];
}

}  // namespace trainyard::ops
