#include "models/layers/latent_attention.h"

#include "models/layers/low_rank.h"

namespace trainyard {
namespace {

constexpr double kNormEps = 1e-6;

ParameterSpec Whole(const std::string& name, int64_t out, int64_t in, Init init) {
  return {.name = name + ".weight", .shape = {out, in}, .init = init, .decay = true};
}

}  // namespace

LatentAttention::LatentAttention(const std::string& name, const LatentAttentionOptions& o)
    : options_(o),
      q_a_(Whole(name + ".q_a_proj", o.query_rank, o.hidden, o.in)),
      q_norm_(name + ".q_a_layernorm", o.query_rank, kNormEps),
      q_({{name + (o.query_rank > 0 ? ".q_b_proj" : ".q_proj"),
           o.heads * (o.nope_dim + o.rope_dim)}},
         o.query_rank > 0 ? o.query_rank : o.hidden, /*bias=*/false, o.in),
      kv_a_(Whole(name + ".kv_a_proj_with_mqa", o.kv_rank + o.rope_dim, o.hidden, o.in)),
      kv_norm_(name + ".kv_a_layernorm", o.kv_rank, kNormEps),
      kv_b_({{name + ".kv_b_proj", o.heads * (o.nope_dim + o.value_dim)}}, o.kv_rank,
            /*bias=*/false, o.in),
      out_(
          {.name = name + ".o_proj", .in = o.heads * o.value_dim, .out = o.hidden, .init = o.out}) {
}

Value LatentAttention::operator()(Recorder& recorder, Value x) const {
  const int64_t local = options_.heads / recorder.mesh().size(kTensorAxes);
  const ops::Heads heads{.heads = local,
                         .kv_heads = local,
                         .head_dim = options_.nope_dim + options_.rope_dim,
                         .sequence = recorder.part().rows,
                         .value_head_dim = options_.value_dim};
  recorder.set_label("attention");
  const auto narrow = [&](const ParameterSpec& weight) {
    return AdaptedLinear(recorder, x, weight);
  };
  const Value q = q_(recorder, options_.query_rank > 0 ? q_norm_(recorder, narrow(q_a_)) : x);
  const std::vector<Value> narrow_kv =
      ops::SplitColumns(recorder, narrow(kv_a_), {options_.kv_rank, options_.rope_dim});
  const Value kv = kv_b_(recorder, kv_norm_(recorder, narrow_kv[0]));
  const Value k_rope = ops::AllGather(recorder, narrow_kv[1], kTensorAxes);
  const Value qkv =
      ops::LatentHeads(recorder, {.q = q, .kv = kv, .k_rope = k_rope}, heads, options_.rope);
  ops::AttentionForm form{
      .soft_cap = options_.soft_cap, .scale = options_.scale, .dropout = options_.dropout};
  if (recorder.Declares(kDocumentBegins)) form.documents.begins = recorder.Read(kDocumentBegins);
  return out_(recorder, ops::Attention(recorder, qkv, heads, form));
}

}  // namespace trainyard
