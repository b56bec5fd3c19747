#include "models/arch/decoder.h"

#include <cmath>

namespace trainyard {
namespace {

ops::RopeTable RopeOf(const DecoderConfig& c) {
  return {.base = c.rope_base,
          .factor = c.rope_scaling.factor,
          .low_freq_factor = c.rope_scaling.low_freq_factor,
          .high_freq_factor = c.rope_scaling.high_freq_factor,
          .original_max_seq = c.rope_scaling.original_max_seq};
}

}  // namespace

Init DecoderInputInit() { return Init::Normal(0.02); }
Init DecoderOutputInit(const DecoderConfig& c) {
  return Init::Normal(0.02 / std::sqrt(2.0 * double(c.layers)));
}

AttentionOptions DecoderAttentionOptions(const DecoderConfig& c) {
  AttentionOptions options{.heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = c.head_dim,
                           .rope = {},
                           .soft_cap = c.attention_soft_cap,
                           .dropout = c.attention_dropout};
  if (c.rope_base > 0) options.rope = RopeOf(c);
  return options;
}

AttentionOptions WithQkNorm(const DecoderConfig& c, const std::string& name) {
  AttentionOptions options = DecoderAttentionOptions(c);
  options.qk_norm = QkNorm(name, c.head_dim, c.norm_eps);
  return options;
}

Value AddBranch(Recorder& recorder, const DecoderConfig& c, absl::string_view name, Value x_TD,
                Value branch_TD) {
  return ops::Add(recorder, x_TD, ops::Dropout(recorder, branch_TD, c.hidden_dropout, name));
}

Attention DecoderAttention(const DecoderConfig& c, const std::string& name,
                           const AttentionOptions& options, const DecoderAttentionForm& form) {
  const int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  return Attention(options,
                   ColumnLinear({{name + ".q_proj", queries},
                                 {.name = name + ".k_proj", .width = keys, .key_value = true},
                                 {.name = name + ".v_proj", .width = keys, .key_value = true}},
                                c.hidden, form.qkv_bias, DecoderInputInit()),
                   RowLinear({.name = name + ".o_proj",
                              .in = queries,
                              .out = c.hidden,
                              .bias = form.out_bias,
                              .init = DecoderOutputInit(c)}));
}

Mlp DecoderMlp(const DecoderConfig& c, const std::string& name, Activation activation) {
  std::vector<LinearPart> up = {{name + ".up_proj", c.ffn}};
  if (IsGated(activation)) up.insert(up.begin(), {name + ".gate_proj", c.ffn});
  return Mlp(activation, ColumnLinear(up, c.hidden, /*bias=*/false, DecoderInputInit()),
             RowLinear({.name = name + ".down_proj",
                        .in = c.ffn,
                        .out = c.hidden,
                        .init = DecoderOutputInit(c)}));
}

MoeInit DecoderMoeInit(const DecoderConfig& c) {
  return {.in = DecoderInputInit(), .out = DecoderOutputInit(c)};
}

}  // namespace trainyard
