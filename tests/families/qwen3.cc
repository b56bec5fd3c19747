#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

PublishedModel Published(const char* preset, double parameters, bool tied) {
  return {.preset = preset,
          .parameters = parameters,
          .numbers = {{"rope_base", 1e6}, {"max_seq", 40960}, {"tied", tied}, {"norm_eps", 1e-6}}};
}

}  // namespace

FamilyCase Qwen3Case() {
  return {
      .name = "qwen3",
      .tiny = [] { return TinyAs("qwen3"); },
      // As the public checkpoints' safetensors files count them. A head that shares the embedding
      // counts once.
      .published = {Published("qwen3-0.6b", 596'049'920, true),
                    Published("qwen3-1.7b", 1'720'574'976, true),
                    Published("qwen3-4b", 4'022'468'096, true),
                    Published("qwen3-8b", 8'190'735'360, false),
                    Published("qwen3-14b", 14'768'307'200, false),
                    Published("qwen3-32b", 32'762'123'264, false)},
      .flops = LlamaFlops,
      .size_layout = [](ModelConfig& c, LayoutSizes&) { AsDecoder(c).head_dim = kNormedHeadDim; },
      .parts = LlamaParts,
  };
}

}  // namespace trainyard::testing
