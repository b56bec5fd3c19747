// Qwen3-MoE: a Llama block with normalised query and key heads, and a mixture of experts instead of
// the MLP.
//
// Source: Qwen3, arXiv:2505.09388, section 2; shapes as in the released config.json. Parameter
// names are those of the public checkpoint. It has no bias on the router's choice and no shared
// experts; they are named as in DeepSeek-V3.
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

class Qwen3MoeBlock : public DecoderBlock<Moe> {
 public:
  Qwen3MoeBlock(const DecoderConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name,
                     DecoderAttention(c, name + ".self_attn", WithQkNorm(c, name + ".self_attn")),
                     Moe(name + ".mlp", *c.moe, c.hidden, DecoderMoeInit(c))) {}
};

// Every layer is a mixture of experts. ffn has the value of the published config and is not used.
DecoderConfig Qwen3_30bA3b() {
  return {.layers = 48,
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

HfTable HuggingFace() {
  HfTable table = DecoderHf("qwen3_moe", "Qwen3MoeForCausalLM");
  table.keys.insert(table.keys.end(),
                    {{.key = "num_experts", .field = "moe.experts", .alias = "num_local_experts"},
                     {"num_experts_per_tok", "moe.top_k"},
                     {"moe_intermediate_size", "moe.expert_ffn"},
                     {"norm_topk_prob", "moe.norm_topk", false}});
  table.balance = {"router_aux_loss_coef", 1e-3, "output_router_logits"};
  table.rope_scalings = HfLlamaScalings();
  table.fixed.insert(table.fixed.end(), {{"attention_bias", "false"},
                                         {"decoder_sparse_step", "1"},
                                         {"mlp_only_layers", "[]"},
                                         {"use_sliding_window", "false"}});
  // Of windows that use_sliding_window would switch on, and what the architecture has anyway.
  table.ignored = {{"max_window_layers"},
                   {"sliding_window"},
                   {"shared_expert_intermediate_size", "0"},
                   {"use_qk_norm", "true"}};
  return table;
}

}  // namespace

Family Qwen3MoeFamily() {
  constexpr DecoderTraits kTraits = {.experts = true};
  return DecoderFamily<kTraits, Decoder<Qwen3MoeBlock>>(
      {.name = "qwen3_moe",
       .activation = "swiglu",
       .norm = "rmsnorm",
       .defaults = {.max_seq = 40960,
                    .norm_eps = 1e-6,
                    .rope_base = 1'000'000,
                    .moe = MoeConfig{.aux_loss = 1e-3}},
       .presets = {{"qwen3-30b-a3b", {}, Qwen3_30bA3b()}},
       .hf = HuggingFace()});
}

}  // namespace trainyard
