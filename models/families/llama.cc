// Llama: pre-norm decoder with grouped-query attention, rotary positions and a SwiGLU MLP.
//
// Source: arXiv:2307.09288, arXiv:2407.21783 section 3.2; shapes as in the released config.json
// files. Parameter names are the public checkpoint's.
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

class LlamaBlock : public DecoderBlock<Mlp> {
 public:
  LlamaBlock(const DecoderConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name, DecoderAttention(c, name + ".self_attn", DecoderAttentionOptions(c)),
                     DecoderMlp(c, name + ".mlp", Activation::kSwiGlu)) {}
};

// Llama 2. Vocabulary and context are the same for all sizes, and heads have 128 dims.
DecoderConfig Llama2(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 128,
          .vocab = 32000,
          .max_seq = 4096,
          .rope_base = 10'000};
}

DecoderConfig Llama3(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  DecoderConfig c = Llama2(layers, hidden, heads, /*kv_heads=*/8, ffn);
  c.vocab = 128256;
  c.max_seq = 8192;
  c.rope_base = 500'000;
  return c;
}

// Llama 3 with a longer context.
DecoderConfig Llama31(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  DecoderConfig c = Llama3(layers, hidden, heads, ffn);
  c.max_seq = 131072;
  c.rope_scaling.factor = 8;
  return c;
}

DecoderConfig Llama31_405b(int64_t layers) { return Llama31(layers, 16384, 128, 53248); }

DecoderConfig Llama32_1b() {
  DecoderConfig c = Llama31(16, 2048, 32, 8192);
  c.head_dim = 64;
  c.rope_scaling.factor = 32;
  c.tied = true;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("llama", "LlamaForCausalLM");
  KeyOf(table, "kv_heads").derived = HfHeads;
  KeyOf(table, "head_dim").derived = HfHeadDim;
  table.rope_scalings = HfLlamaScalings();
  table.fixed.push_back({"attention_bias", "false"});
  table.fixed.push_back({"mlp_bias", "false"});
  // `transformers` has other defaults for Mistral, among them a window.
  table.other = {.model_type = "mistral",
                 .architecture = "MistralForCausalLM",
                 .fixed = {{"sliding_window", "null", /*required=*/true}},
                 .required = {"num_key_value_heads"}};
  // Also of programs that write other architectures in the same form.
  table.ignored = {{"activation", "\"swiglu\""},
                   {"is_llama_config"},
                   {"max_sequence_length"},
                   {"sliding_window"}};
  return table;
}

}  // namespace

Family LlamaFamily() {
  return DecoderFamily<DecoderTraits{}, Decoder<LlamaBlock>>(
      {.name = "llama",
       .activation = "swiglu",
       .norm = "rmsnorm",
       .defaults = {.max_seq = 8192, .rope_base = 500'000},
       .presets = {{"llama2-7b", {}, Llama2(32, 4096, 32, 32, 11008)},
                   {"llama2-13b", {}, Llama2(40, 5120, 40, 40, 13824)},
                   {"llama2-70b", {}, Llama2(80, 8192, 64, 8, 28672)},
                   {"llama3-8b", {}, Llama3(32, 4096, 32, 14336)},
                   {"llama3-70b", {}, Llama3(80, 8192, 64, 28672)},
                   {"llama3.1-8b", {}, Llama31(32, 4096, 32, 14336)},
                   {"llama3.1-70b", {"llama3.3-70b-instruct"}, Llama31(80, 8192, 64, 28672)},
                   {"llama3.1-405b", {}, Llama31_405b(126)},
                   {"llama3.1-405b-proxy-8", {}, Llama31_405b(8)},
                   {"llama3.1-405b-proxy-30", {}, Llama31_405b(30)},
                   {"llama3.1-405b-proxy-62", {}, Llama31_405b(62)},
                   {"llama3.2-1b", {}, Llama32_1b()}},
       .hf = HuggingFace()});
}

}  // namespace trainyard
