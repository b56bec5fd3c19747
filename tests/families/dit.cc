#include "models/families/dit.h"

#include "tests/families/family_case.h"

namespace trainyard::testing {
namespace {

// Its heads together are narrower than the model. A sample has 9 tokens, each of 3 channels of
// 2 x 2 places.
ModelConfig TinyDit() {
  return ModelConfig("dit", DitConfig{.layers = 2,
                                      .hidden = 16,
                                      .ffn = 20,
                                      .heads = 3,
                                      .head_dim = 4,
                                      .in_channels = 3,
                                      .sample_size = 6,
                                      .patch_size = 2,
                                      .num_classes = 4,
                                      .num_timesteps = 30});
}

// Table 1 of arXiv:2212.09748 with the counts of table 4. The paper's models say a variance beside
// the noise, so that the last product is twice as wide, and its released code counts the fixed
// positions of 256 patches: 675,129,632 for DiT-XL/2.
PublishedModel Published(const char* preset, double parameters, double within, double hidden) {
  const double variance = (hidden + 1) * 16, positions = 256 * hidden;
  return {.preset = preset,
          .parameters = parameters - variance - positions,
          .within = within,
          .numbers = {{"hidden", hidden}}};
}

// What belongs to a sample counts once for its tokens. The first products have no input gradient.
double TrainingFlops(const ModelConfig& config, double tokens) {
  const DitConfig& c = config.As<DitConfig>();
  const double layers = double(c.layers), d = double(c.hidden), elements = 16;
  const double of_sample = layers * 6 * 6 * d * d + 6 * 2 * d * d + 6 * d * d + 4 * 256 * d;
  return layers * (6 * 12 * d * d + 12 * d * tokens) + (6 + 4) * d * elements + of_sample / tokens;
}

// Of two samples at once, so that ranks begin in the middle of a sample.
void Size(ModelConfig& config, LayoutSizes& sizes) {
  config.As<DitConfig>() = {.layers = sizes.layers,
                            .hidden = 8,
                            .ffn = 3 * sizes.tensor,
                            .heads = 2 * sizes.tensor,
                            .head_dim = 2,
                            .in_channels = 1,
                            .sample_size = 10,  // 25 places for at most 16 tokens.
                            .patch_size = 2,
                            .num_classes = 4};
  sizes.samples = 2;
}

std::vector<FrozenPart> Parts(const ModelConfig&) {
  return {{"embedder", {"*.emb.*"}, {}},
          {"embedder_and_patches", {"*.emb.*", "pos_embed.*"}, {}},
          {"conditions", {"*norm1.linear*", "proj_out_1*"}, {}},
          {"all_but_conditions", {}, {"*norm1*", "proj_out_1*"}},
          {"all_but_embedder", {}, {"*.emb.*"}},
          {"all_but_head", {}, {"proj_out_2*"}},
          {"lower", {"pos_embed.*", "transformer_blocks.0.*"}, {}},
          {"of_a_product", {"*to_q*", "*net.0*weight"}, {}}};
}

DitConfig& Of(ModelConfig& config) { return config.As<DitConfig>(); }

}  // namespace

FamilyCase DitCase() {
  return {
      .name = "dit",
      .is_decoder = false,
      .tiny = TinyDit,
      .variants =
          [] {
            return std::vector<ModelVariant>{
                {.name = "adapted", .config = TinyDit(), .adapted = true}};
          },
      .published = {Published("dit-s-2", 33e6, 0.6e6, 384), Published("dit-b-2", 130e6, 0.6e6, 768),
                    Published("dit-l-2", 458e6, 0.6e6, 1024),
                    Published("dit-xl-2", 675'129'632, 0, 1152)},
      .wrong_preset = "dit-s-2",
      .wrong = {{"hidden", "wanted a multiple of 4 from 4 to 65536, found 386; nearest 384",
                 [](ModelConfig& c) { Of(c).hidden = 386; }},
                {"patch_size", "wanted a divisor of sample_size = 32, found 3; nearest 4",
                 [](ModelConfig& c) { Of(c).patch_size = 3; }},
                {"in_channels", "found 0; nearest 1",
                 [](ModelConfig& c) { Of(c).in_channels = 0; }},
                {"num_classes", "found -1; nearest 1",
                 [](ModelConfig& c) { Of(c).num_classes = -1; }},
                {"head_dim", "found 3", [](ModelConfig& c) { Of(c).head_dim = 3; }},
                {"norm_eps", "found 0", [](ModelConfig& c) { Of(c).norm_eps = 0; }}},
      .flops = TrainingFlops,
      .size_layout = Size,
      .parts = Parts,
      .emulated = {{"in_channels", 2}, {"sample_size", 8}, {"num_classes", 3}},
      .measured = {{"sample_size", 8}},
  };
}

}  // namespace trainyard::testing
