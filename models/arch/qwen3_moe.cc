// Qwen3-MoE: a Llama block with normalised query and key heads, and a mixture of experts in place
// of its MLP.
//
// Source: Qwen3, arXiv:2505.09388, section 2; shapes as in the released config.json. Parameter
// names are the public checkpoint's; the bias of the gate and shared experts, which it has not, are
// named as in DeepSeek-V3's. Letters: T tokens on this rank, D model width.
#include "models/arch/qwen3_moe.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/moe.h"
#include "models/layers/norm.h"

namespace trainyard {
namespace {

// The standard deviations of the public implementations.
Init InputInit() { return Init::Normal(0.02); }
Init OutputInit(const ModelConfig& c) { return Init::Normal(0.02 / std::sqrt(2.0 * c.layers)); }

class Qwen3MoeBlock {
 public:
  Qwen3MoeBlock(const ModelConfig& c, const std::string& name)
      : attention_norm_(name + ".input_layernorm", c.hidden, c.norm_eps),
        attention_({.heads = c.heads,
                    .kv_heads = c.kv_heads,
                    .head_dim = c.head_dim,
                    .rope = ops::RopeTable{.base = c.rope_base},
                    .qk_norm = QkNorm(name + ".self_attn", c.head_dim, c.norm_eps)},
                   ColumnLinear({{name + ".self_attn.q_proj", c.heads * c.head_dim},
                                 {.name = name + ".self_attn.k_proj",
                                  .width = c.kv_heads * c.head_dim,
                                  .key_value = true},
                                 {.name = name + ".self_attn.v_proj",
                                  .width = c.kv_heads * c.head_dim,
                                  .key_value = true}},
                                c.hidden, /*bias=*/false, InputInit()),
                   RowLinear({.name = name + ".self_attn.o_proj",
                              .in = c.heads * c.head_dim,
                              .out = c.hidden,
                              .init = OutputInit(c)})),
        moe_norm_(name + ".post_attention_layernorm", c.hidden, c.norm_eps),
        moe_(name + ".mlp", *c.moe, c.hidden, {.in = InputInit(), .out = OutputInit(c)}) {}

  Value operator()(Recorder& recorder, Value x_TD) const {
    recorder.set_label("attention");
    x_TD = ops::Add(recorder, x_TD, attention_(recorder, attention_norm_(recorder, x_TD)));
    recorder.set_label("mlp");
    return ops::Add(recorder, x_TD, moe_(recorder, moe_norm_(recorder, x_TD)));
  }

 private:
  RmsNorm attention_norm_;
  Attention attention_;
  RmsNorm moe_norm_;
  Moe moe_;
};

class Qwen3Moe final : public Model {
 public:
  explicit Qwen3Moe(const ModelConfig& c)
      : config_(c),
        embedding_("model.embed_tokens", c.vocab, c.hidden, InputInit()),
        norm_("model.norm", c.hidden, c.norm_eps),
        output_(c.tied ? "model.embed_tokens" : "lm_head", c.vocab, c.hidden, InputInit()) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.max_seq; }
  Value Embed(Recorder& recorder, Value tokens) const override {
    return embedding_.Embed(recorder, tokens);
  }
  Value Block(Recorder& recorder, int64_t layer, Value x_TD) const override {
    return Qwen3MoeBlock(config_, absl::StrCat("model.layers.", layer))(recorder, x_TD);
  }
  Value Head(Recorder& recorder, Value x_TD) const override {
    return output_.Logits(recorder, norm_(recorder, x_TD));
  }

 private:
  ModelConfig config_;
  VocabularyTable embedding_;
  RmsNorm norm_;
  VocabularyTable output_;
};

// Every layer is a mixture: ffn is the published config's, and of no effect.
ModelConfig Qwen3_30bA3b() {
  return {.family = "qwen3_moe",
          .layers = 48,
          .hidden = 2048,
          .ffn = 6144,
          .heads = 32,
          .kv_heads = 4,
          .head_dim = 128,
          .vocab = 151936,
          .max_seq = 40960,
          .norm_eps = 1e-6,
          .rope_base = 1'000'000,
          .moe = MoeConfig{.experts = 128, .top_k = 8, .expert_ffn = 768, .aux_loss = 1e-3}};
}

}  // namespace

Family Qwen3MoeFamily() {
  return {.name = "qwen3_moe",
          .defaults = {.family = "qwen3_moe",
                       .max_seq = 40960,
                       .norm_eps = 1e-6,
                       .rope_base = 1'000'000,
                       .moe = MoeConfig{.aux_loss = 1e-3}},
          .activation = "swiglu",
          .gated = true,
          .norm = "rmsnorm",
          .bias = false,
          .position = "rope",
          .presets = {{"qwen3-30b-a3b", {}, Qwen3_30bA3b()}},
          .create = [](const ModelConfig& c) -> std::unique_ptr<Model> {
            return std::make_unique<Qwen3Moe>(c);
          }};
}

}  // namespace trainyard
