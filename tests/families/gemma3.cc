#include "models/families/gemma3.h"

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// A window in the first of the two layers.
ModelConfig TinyGemma3(bool tied) {
  ModelConfig config = TinyAs("gemma3", tied);
  Gemma3Config& c = config.As<Gemma3Config>();
  c.global_every = 2;
  c.window = 3;
  c.rope_base = 1000;
  c.local_rope_base = 100;
  c.rope_factor = 4;
  c.query_pre_attn_scalar = 6;
  return config;
}

// Table 1 of arXiv:2503.19786, in millions: the embedding, and the others. The table counts the
// projection of images into the model, of 1152 columns, to the embedding.
PublishedModel Published(const char* preset, double embedding, double others, double images,
                         double window, double scalar, double factor, int64_t exact = 0) {
  return {.preset = preset,
          .parameters = 1e6 * (embedding + others) - images,
          .within = 1e6,
          .embedding = 1e6 * embedding - images,
          .exact_active = exact,
          .numbers = {{"rope_base", 1e6},
                      {"max_seq", factor > 0 ? 131072 : 32768},
                      {"tied", 1},
                      {"norm_eps", 1e-6},
                      {"window", window},
                      {"query_pre_attn_scalar", scalar},
                      {"rope_factor", factor},
                      {"local_rope_base", 1e4},
                      {"global_every", 6}}};
}

double TrainingFlops(const ModelConfig& config, double sequence) {
  const Gemma3Config& c = config.As<Gemma3Config>();
  const auto window = [&](int64_t layer) {
    return (layer + 1) % c.global_every == 0 ? 0 : c.window;
  };
  return DecoderFlops(config, sequence, {.window = window});
}

void Size(ModelConfig& config, LayoutSizes&) {
  Gemma3Config& c = config.As<Gemma3Config>();
  c.head_dim = kNormedHeadDim;
  PadVocabulary(c);  // Of a head that is the embedding.
  c.global_every = 2;
  c.window = 3;  // Across two parts of the sequence, and not all of the sequence.
  c.rope_base = 1000;
  c.local_rope_base = 100;
  c.rope_factor = 4;
  c.query_pre_attn_scalar = 3;
  // New weights are so small that norms behind them would amplify rounding.
  c.norm_eps = 0.01;
}

Gemma3Config& Of(ModelConfig& config) { return config.As<Gemma3Config>(); }

}  // namespace

FamilyCase Gemma3Case() {
  return {
      .name = "gemma3",
      .as_decoder = [](ModelConfig& c) -> DecoderConfig& { return c.As<Gemma3Config>(); },
      .tiny = [] { return TinyGemma3(/*tied=*/true); },
      .variants =
          [] {
            return std::vector<ModelVariant>{{"untied", TinyGemma3(false)}};
          },
      .published = {Published("gemma3-1b", 302, 698, 0, 512, 256, 0, 999'885'952),
                    Published("gemma3-4b", 675, 3209, 1152 * 2560, 1024, 256, 8),
                    Published("gemma3-12b", 1012, 10759, 1152 * 3840, 1024, 256, 8),
                    Published("gemma3-27b", 1416, 25600, 1152 * 5376, 1024, 168, 8)},
      .wrong_preset = "gemma3-1b",
      .wrong = {{"global_every", "wanted 1 to 1024, found 0; nearest 1",
                 [](ModelConfig& c) { Of(c).global_every = 0; }},
                {"window", "wanted 1 to 1048576, found 0; nearest 1",
                 [](ModelConfig& c) { Of(c).window = 0; }},
                {"local_rope_base", "found 0.5",
                 [](ModelConfig& c) { Of(c).local_rope_base = 0.5; }},
                {"rope_factor", "wanted 0 (none) <= x <= 1e6 (usual: 8), found -8",
                 [](ModelConfig& c) { Of(c).rope_factor = -8; }},
                {"query_pre_attn_scalar", "found 0; nearest 1",
                 [](ModelConfig& c) { Of(c).query_pre_attn_scalar = 0; }}},
      .flops = TrainingFlops,
      .size_layout = Size,
      .parts = LlamaParts,
      .fields = {.architecture = R"({"fields": {"global_every": "2", "window": "6",
                   "local_rope_base": "100", "rope_factor": "8", "query_pre_attn_scalar": "4"}})",
                 .changes = {{"global_every", "3"},
                             {"window", "5"},
                             {"local_rope_base", "50"},
                             {"rope_factor", "4"},
                             {"query_pre_attn_scalar", "6"}}},
  };
}

}  // namespace trainyard::testing
