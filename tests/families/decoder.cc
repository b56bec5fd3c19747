#include "tests/families/decoder.h"

namespace trainyard::testing {

ModelConfig Tiny(absl::string_view family, int64_t heads, int64_t kv_heads) {
  ModelConfig config = FindFamily(family)->defaults;
  DecoderConfig& c = AsDecoder(config);
  c.layers = 2;
  c.hidden = 12;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = 4;
  c.vocab = 13;
  c.max_seq = 16;
  return config;
}

ModelConfig TinyAs(absl::string_view family, bool tied) {
  ModelConfig config = Tiny(family, 4, 2);
  AsDecoder(config).ffn = 20;
  AsDecoder(config).tied = tied;
  return config;
}

ModelConfig TinyMoeAs(absl::string_view family) {
  ModelConfig config = Tiny(family, 4, 2);
  AsDecoder(config).moe = MoeConfig{.experts = 6, .top_k = 2, .expert_ffn = 5, .aux_loss = 0.05};
  return config;
}

ModelConfig Capped(ModelConfig config) {
  AsDecoder(config).attention_soft_cap = 2;
  return config;
}

namespace {

// How many tokens a query sees, in the mean.
double Visible(int64_t window, double s) {
  const double w = double(window);
  return window == 0 || w >= s ? (s + 1) / 2 : w - w * (w - 1) / (2 * s);
}

}  // namespace

double DecoderFlops(const ModelConfig& config, double sequence, const DecoderForm& form) {
  const DecoderConfig& c = AsDecoder(config);
  const double h = double(c.hidden), a = double(c.heads), d = double(c.head_dim);
  const double weights = form.attention_weights > 0 ? form.attention_weights
                                                    : h * d * (2 * a + 2 * double(c.kv_heads));
  const double width = form.attention_width > 0 ? form.attention_width : 2 * a * d;
  const int64_t dense = form.dense_layers >= 0 ? form.dense_layers : c.moe ? 0 : c.layers;
  const double matrices = FindFamily(config.family())->gated ? 3 : 2;
  double flops = 6 * double(c.vocab) * h;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    double mlp = matrices * h * double(c.ffn);
    if (layer >= dense) {
      const double experts = double(c.moe->top_k * c.moe->expert_ffn + c.moe->shared_ffn);
      mlp = matrices * h * experts + h * double(c.moe->experts);
    }
    const int64_t window = form.window ? form.window(layer) : 0;
    flops += 6 * (weights + width * Visible(window, sequence) + mlp);
  }
  return flops;
}

double LlamaFlops(const ModelConfig& config, double sequence) {
  return DecoderFlops(config, sequence, {});
}

std::vector<FrozenPart> DecoderParts(const ModelConfig& config, const std::string& embedding,
                                     const std::string& first_layer) {
  const std::string head = AsDecoder(config).tied ? embedding : "lm_head.weight";
  std::vector<FrozenPart> parts = {
      {"lower", {embedding, first_layer + "*"}, {}},
      {"matrices", {"*proj*", "lm_head.weight"}, {}},
      {"all_but_norms", {}, {"*norm*"}},
      {"all_but_head", {}, {head}},
      {"all_but_one_layer", {}, {first_layer + "*"}},
      {"upper", {"*lm_head*", "*layers.1.*"}, {}},
      {"of_a_product", {"*q_proj*", "*.up_proj.*", "*gate_proj*"}, {}}};
  if (FactsOf(config).experts) parts.push_back({"experts", {"*.experts.*"}, {}});
  return parts;
}

std::vector<FrozenPart> LlamaParts(const ModelConfig& config) {
  return DecoderParts(config, "model.embed_tokens.weight", "model.layers.0.");
}

void PadVocabulary(DecoderConfig& config) {
  config.vocab_multiple = 2 * config.vocab;
  config.vocab = config.vocab_multiple - 1;
}

}  // namespace trainyard::testing
