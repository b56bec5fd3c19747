// Qwen2 and Qwen2.5: a Llama block in which the projections of queries, keys and values have
// biases.
//
// Source: arXiv:2407.10671 section 2.2.1; arXiv:2412.15115; shapes as in NVIDIA/NeMo's
// nemo/collections/llm/gpt/model/qwen2.py. Parameter names are the public checkpoint's.
#include <nlohmann/json.hpp>

#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

class Qwen2Block : public DecoderBlock<Mlp> {
 public:
  Qwen2Block(const DecoderConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name,
                     DecoderAttention(c, name + ".self_attn", DecoderAttentionOptions(c),
                                      {.qkv_bias = true}),
                     DecoderMlp(c, name + ".mlp", Activation::kSwiGlu)) {}
};

// The vocabulary is that of the models from 7b on; heads have 128 dims.
DecoderConfig Qwen25(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 128,
          .vocab = 152064,
          .max_seq = 131072,
          .norm_eps = 1e-6,
          .rope_base = 1'000'000};
}

// NeMo gives this model another norm_eps than the smaller ones.
DecoderConfig Qwen25_32b() {
  DecoderConfig c = Qwen25(64, 5120, 40, 8, 27648);
  c.norm_eps = 1e-5;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("qwen2", "Qwen2ForCausalLM");
  KeyOf(table, "head_dim").derived = HfHeadDim;
  HfWithoutWindows(table);
  // CodeQwen1.5 repeats the base and the longest sequence. `transformers` does not read them.
  table.derived.push_back({.key = "rotary_emb_base",
                           .value =
                               [](const ModelConfig& config) {
                                 return nlohmann::json(config.As<DecoderConfig>().rope_base);
                               },
                           .written = false});
  table.ignored.push_back({"seq_length"});
  return table;
}

}  // namespace

Family Qwen2Family() {
  constexpr DecoderTraits kTraits = {.rope_scaling = false};
  return DecoderFamily<kTraits, Decoder<Qwen2Block>>(
      {.name = "qwen2",
       .activation = "swiglu",
       .norm = "rmsnorm",
       .defaults = {.max_seq = 131072, .norm_eps = 1e-6, .rope_base = 1'000'000},
       .presets = {{"qwen2.5-7b", {}, Qwen25(28, 3584, 28, 4, 18944)},
                   {"qwen2.5-32b", {}, Qwen25_32b()}},
       .hf = HuggingFace()});
}

}  // namespace trainyard
