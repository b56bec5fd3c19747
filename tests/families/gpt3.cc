#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

ModelConfig TinyGpt3() {
  ModelConfig config = Tiny("gpt3", 3, 3);
  AsDecoder(config).ffn = 48;
  return config;
}

std::vector<ModelVariant> Variants() {
  return {{"capped", Capped(TinyGpt3())},
          {.name = "adapted", .config = TinyGpt3(), .adapted = true}};
}

PublishedModel Published(const char* preset, double parameters, double within, double max_seq) {
  return {.preset = preset,
          .parameters = parameters,
          .within = within,
          .numbers = {{"rope_base", 0}, {"max_seq", max_seq}, {"tied", 1}, {"norm_eps", 1e-5}}};
}

std::vector<FrozenPart> Parts(const ModelConfig& config) {
  const char* const head = AsDecoder(config).tied ? "transformer.wte.weight" : "lm_head.weight";
  return {{"lower", {"transformer.w*", "transformer.h.0.*"}, {}},
          {"matrices", {"*proj*", "*.c_*weight", "lm_head.weight"}, {}},
          {"all_but_norms", {}, {"*ln_*"}},
          {"all_but_head", {}, {head}},
          {"all_but_one_layer", {}, {"transformer.h.0.*"}},
          {"upper", {"*lm_head*", "*h.1.*"}, {}}};
}

void Size(ModelConfig& config, LayoutSizes&) {
  DecoderConfig& c = AsDecoder(config);
  c.kv_heads = c.heads;
  c.hidden = c.heads * c.head_dim;
  c.ffn = 4 * c.hidden;
}

}  // namespace

FamilyCase Gpt3Case() {
  return {
      .name = "gpt3",
      .tiny = TinyGpt3,
      .variants = Variants,
      // By name only. The small ones have their vocabulary padded.
      .published = {Published("gpt3-5b", 5e9, 0.3e9, 2048),
                    Published("gpt3-20b", 20e9, 0.4e9, 2048),
                    Published("gpt3-175b", 175e9, 1e9, 2048),
                    Published("gpt2-124m", 124e6, 0.6e6, 1024),
                    Published("gpt2-350m", 355e6, 0.6e6, 1024),
                    Published("gpt2-774m", 774e6, 0.6e6, 1024),
                    Published("gpt2-1558m", 1558e6, 0.6e6, 1024)},
      .wrong_preset = "gpt2-124m",
      // The family has no rotary positions.
      .wrong = {{"rope_base", "found 10000",
                 [](ModelConfig& c) { AsDecoder(c).rope_base = 10'000; }}},
      .flops = LlamaFlops,
      .size_layout = Size,
      .parts = Parts,
      .emulated = {{"kv_heads", int64_t{4}}, {"attention_dropout", 0.2}, {"hidden_dropout", 0.1}},
  };
}

}  // namespace trainyard::testing
