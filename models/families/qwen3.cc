// Qwen3, the dense models: a Llama block with normalised query and key heads.
//
// Source: arXiv:2505.09388, section 2 and table 1; shapes as in the released config.json files of
// Qwen/Qwen3-0.6B, -1.7B, -4B, -8B, -14B and -32B. Parameter names are the public checkpoint's.
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

class Qwen3Block : public DecoderBlock<Mlp> {
 public:
  Qwen3Block(const DecoderConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name,
                     DecoderAttention(c, name + ".self_attn", WithQkNorm(c, name + ".self_attn")),
                     DecoderMlp(c, name + ".mlp", Activation::kSwiGlu)) {}
};

// All sizes have 8 key/value heads of 128 dims and the same vocabulary and context.
DecoderConfig Qwen3(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .vocab = 151936,
          .max_seq = 40960,
          .norm_eps = 1e-6,
          .rope_base = 1'000'000};
}

DecoderConfig Tied(DecoderConfig c) {
  c.tied = true;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("qwen3", "Qwen3ForCausalLM");
  KeyOf(table, "head_dim").absent = int64_t{128};
  table.fixed.push_back({"attention_bias", "false"});
  HfWithoutWindows(table);
  return table;
}

}  // namespace

Family Qwen3Family() {
  constexpr DecoderTraits kTraits = {.rope_scaling = false};
  return DecoderFamily<kTraits, Decoder<Qwen3Block>>(
      {.name = "qwen3",
       .activation = "swiglu",
       .norm = "rmsnorm",
       .defaults = {.max_seq = 40960, .norm_eps = 1e-6, .rope_base = 1'000'000},
       .presets = {{"qwen3-0.6b", {}, Tied(Qwen3(28, 1024, 16, 3072))},
                   {"qwen3-1.7b", {}, Tied(Qwen3(28, 2048, 16, 6144))},
                   {"qwen3-4b", {}, Tied(Qwen3(36, 2560, 32, 9728))},
                   {"qwen3-8b", {}, Qwen3(36, 4096, 32, 12288)},
                   {"qwen3-14b", {}, Qwen3(40, 5120, 40, 17408)},
                   {"qwen3-32b", {}, Qwen3(64, 5120, 64, 25600)}},
       .hf = HuggingFace()});
}

}  // namespace trainyard
