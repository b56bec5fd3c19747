#include "models/families/nemotron.h"

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// With V tokens, L layers, width D, and MLPs of width F, the counts are
// 2 V D + L (2 (heads + kv_heads) head_dim D + 2 D F + 4 D) + 2 D: each norm has a bias. The
// published names are of whole billions.
PublishedModel Published(const char* preset, double parameters) {
  return {.preset = preset,
          .parameters = parameters,
          .numbers = {{"rope_base", 1e4},
                      {"max_seq", 4096},
                      {"tied", 0},
                      {"norm_eps", 1e-5},
                      {"rotary_fraction", 0.5}}};
}

// Heads of `head_dim` dims of which `fraction` is rotated.
template <int kThousandths, int kHeadDim>
void Rotate(ModelConfig& config) {
  config.As<NemotronConfig>().rotary_fraction = kThousandths / 1000.0;
  AsDecoder(config).head_dim = kHeadDim;
}

}  // namespace

FamilyCase NemotronCase() {
  return {
      .name = "nemotron",
      .as_decoder = [](ModelConfig& c) -> DecoderConfig& { return c.As<NemotronConfig>(); },
      .tiny = [] { return TinyAs("nemotron"); },
      .published = {Published("nemotron-8b", 8'540'135'424),
                    Published("nemotron-22b", 21'266'116'608),
                    Published("nemotron4-15b", 15'628'775'424),
                    Published("nemotron4-340b", 341'029'195'776)},
      .wrong_preset = "nemotron4-15b",
      .wrong = {{"rotary_fraction",
                 "wanted an even number of head_dim = 20 dims, found 0.35; nearest 0.4",
                 Rotate<350, 20>},
                {"rotary_fraction",
                 "wanted an even number of head_dim = 8 dims, found 0.01; nearest 0.25",
                 Rotate<10, 8>},
                {"rotary_fraction",
                 "wanted an even number of head_dim = 10 dims, found 0.7; nearest 0.8",
                 Rotate<700, 10>},
                {"rotary_fraction", "wanted 0 < x <= 1 (usual: 0.5), found 1.5; nearest 1",
                 Rotate<1500, 10>}},
      .flops = LlamaFlops,
      // Half of a head is rotated.
      .size_layout = [](ModelConfig& c, LayoutSizes&) { AsDecoder(c).head_dim = 4; },
      .parts = LlamaParts,
      .fields = {.architecture = "{}",
                 .changes = {{"attention_dropout", "0.1"},
                             {"hidden_dropout", "0.1"},
                             {"rotary_fraction", "1"}}},
  };
}

}  // namespace trainyard::testing
