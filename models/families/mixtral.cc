// Mixtral: a Llama block with a mixture of experts in place of the MLP. Each token goes to its two
// best experts, whose weights are the softmax over their logits. This equals the softmax over all
// logits, normalised over the chosen experts (kernels/experts/router.h).
//
// Source: arXiv:2401.04088, section 2; shapes as in the released config.json files of
// mistralai/Mixtral-8x7B-v0.1 and mistralai/Mixtral-8x22B-v0.1. Parameter names are the public
// checkpoint's: an expert's gate, up and down are w1, w3 and w2.
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

class MixtralBlock : public DecoderBlock<Moe> {
 public:
  MixtralBlock(const DecoderConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name, DecoderAttention(c, name + ".self_attn", DecoderAttentionOptions(c)),
                     Moe(name + ".block_sparse_moe", *c.moe, c.hidden, DecoderMoeInit(c),
                         {.gate_proj = "w1", .up_proj = "w3", .down_proj = "w2"})) {}
};

// Two of eight experts for each token; 8 key/value heads of 128 dims.
DecoderConfig Mixtral(int64_t layers, int64_t hidden, int64_t heads, int64_t expert_ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .vocab = 32000,
          .rope_base = 1'000'000,
          .moe = MoeConfig{.experts = 8, .top_k = 2, .expert_ffn = expert_ffn}};
}

DecoderConfig Mixtral8x7b() {
  DecoderConfig c = Mixtral(32, 4096, 32, 14336);
  c.max_seq = 32768;
  c.moe->aux_loss = 0.02;
  return c;
}

DecoderConfig Mixtral8x22b() {
  DecoderConfig c = Mixtral(56, 6144, 48, 16384);
  c.max_seq = 65536;
  c.moe->aux_loss = 1e-3;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("mixtral", "MixtralForCausalLM");
  std::erase_if(table.keys, [](const HfKey& key) { return key.field == std::string("ffn"); });
  KeyOf(table, "kv_heads").absent = int64_t{8};
  KeyOf(table, "kv_heads").derived = HfHeads;
  KeyOf(table, "head_dim").derived = HfHeadDim;
  KeyOf(table, "norm_eps").absent = 1e-5;
  table.keys.insert(table.keys.end(), {{"num_local_experts", "moe.experts", int64_t{8}},
                                       {"num_experts_per_tok", "moe.top_k", int64_t{2}},
                                       {"intermediate_size", "moe.expert_ffn"}});
  table.balance = {"router_aux_loss_coef", 1e-3, "output_router_logits"};
  table.rope_keys = {{"rope_theta", "rope_base", 1e6}};
  table.fixed.push_back({"router_jitter_noise", "0.0"});
  table.in_memory = {".block_sparse_moe.", ".mlp."};
  return table;
}

}  // namespace

Family MixtralFamily() {
  constexpr DecoderTraits kTraits = {.rope_scaling = false, .experts = true, .plain_router = true};
  return DecoderFamily<kTraits, Decoder<MixtralBlock>>(
      {.name = "mixtral",
       .activation = "swiglu",
       .norm = "rmsnorm",
       .defaults = {.max_seq = 32768, .rope_base = 1'000'000, .moe = MoeConfig{.aux_loss = 1e-3}},
       .presets = {{"mixtral-8x7b", {}, Mixtral8x7b()}, {"mixtral-8x22b", {}, Mixtral8x22b()}},
       .hf = HuggingFace()});
}

}  // namespace trainyard
