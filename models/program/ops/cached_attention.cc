// Attention of the newest tokens of texts over all of their tokens so far. The keys and values of
// earlier replays stay in memory. No gradients: only inference programs have a cache
// (RecordOptions::cache).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/attention/attention_part.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/experts/gather_rows.h"
#include "models/program/binder.h"
#include "models/program/ops/attention_form.h"
#include "models/program/ops/caches.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// Writes the new keys and values into the cache, and attends. Rows, begins and ends are inputs of
// the program (kCacheRows and so on).
class CachedAttentionOp final : public NamedOp<CachedAttentionOp> {
 public:
  enum Input { kQkv, kRows, kBegins, kEnds, kSinks, kInputs };
  enum Output { kOut, kLse, kNewKv, kAllKv, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  CachedAttentionOp(const Heads& heads, const AttentionTraits& traits)
      : heads_(heads), traits_(traits) {}
  static constexpr char kName[] = "cached_attention";
  absl::string_view name() const override { return kName; }
  std::string attributes() const override {
    return absl::StrCat(ToString(heads_), traits_.ToString());
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return ConstTensor(binder.tensor(instance.inputs[i])); };
    const auto out = [&](size_t i) { return binder.tensor(instance.outputs[i]); };
    const Tensor kv = out(kNewKv), cache = out(kAllKv);
    const Call copy = binder.Kernel(CopyColumnsArgs{.x = in(kQkv),
                                                    .x_begin = heads_.query_columns(),
                                                    .y = kv,
                                                    .y_begin = 0,
                                                    .columns = kv.shape[1]});
    const Call keep = binder.Kernel(ScatterRowsArgs{.x = kv, .rows = in(kRows), .y = cache});
    AttentionDims dims = traits_.DimsOf(heads_);
    dims.mask = {.causal = false};  // Begins and ends say what a token sees.
    const int64_t sequences = kv.shape[0] / heads_.sequence;
    const int64_t rows = cache.shape[0] / sequences;
    const Call attend = binder.Kernel(AttentionPartForwardArgs{
        .q = ConstMatrixView(in(kQkv), 0, heads_.query_columns()),
        .k = ConstMatrixView(ConstTensor(cache), 0, heads_.key_columns()),
        .v = ConstMatrixView(ConstTensor(cache), heads_.key_columns(), heads_.value_columns()),
        .dims = dims,
        .part = {.q_begin = 0,
                 .q_rows = heads_.sequence,
                 .kv_begin = 0,
                 .kv_rows = rows,
                 .mask = dims.mask,
                 .kv_sequence = rows},
        .out = out(kOut),
        .lse = out(kLse),
        .write = Write::kOverwrite,
        .sinks = traits_.sinks ? in(kSinks) : ConstTensor(),
        .document_begins = in(kBegins),
        .document_ends = in(kEnds)});
    return [copy, keep, attend](Exec& exec) {
      copy(exec);
      keep(exec);
      attend(exec);
    };
  }

 private:
  const Heads heads_;
  const AttentionTraits traits_;
};

}  // namespace

Value CachedAttention(Recorder& recorder, Value qkv, const Heads& heads,
                      const AttentionForm& form) {
  const ValueInfo info = recorder.info(qkv);
  const Program& program = recorder.program();
  CHECK(AccumulateOfDType(info.dtype) == info.dtype && info.shape[0] % heads.sequence == 0 &&
        form.mask.causal && !form.documents.begins.valid())
      << "a cache is for causal attention in f32 or f64; found " << info << " of sequences of "
      << heads.sequence;
  const int64_t rows = program.cached_texts * RowsOfText(program.cache);
  const int64_t columns = heads.key_columns() + heads.value_columns();
  const auto of_tokens = [&](const std::string& name) {
    return recorder.Read(InputSpec{.name = name, .limit = rows + 1});
  };
  std::vector<Value> inputs = {qkv, of_tokens(kCacheRows),
                               of_tokens(absl::StrCat(kCacheBegins, form.mask.window)),
                               of_tokens(kCacheEnds)};
  if (form.sinks.valid()) inputs.push_back(form.sinks);
  ValueInfo keys = info;
  keys.shape = {rows, columns};
  const Value cache = CacheOf(recorder, CachedAttentionOp::kName, keys);
  const int64_t sequences = info.shape[0] / heads.sequence;
  return recorder.Emit(
      std::make_shared<CachedAttentionOp>(heads, AttentionTraits(recorder, heads, form)),
      std::move(inputs),
      {{.shape = {info.shape[0], heads.heads * heads.value_dim()},
        .dtype = info.dtype,
        .name = "mixed"},
       Recorder::Output::Memory("lse", {sequences, heads.heads, heads.sequence}, info.dtype),
       Recorder::Output::Memory("new keys and values", {info.shape[0], columns}, info.dtype),
       Recorder::Output::Into(cache)})[0];
}

}  // namespace trainyard::ops
