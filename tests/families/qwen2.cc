#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

PublishedModel Published(const char* preset, double parameters, double norm_eps) {
  return {
      .preset = preset,
      .parameters = parameters,
      .numbers = {{"rope_base", 1e6}, {"max_seq", 131072}, {"tied", 0}, {"norm_eps", norm_eps}}};
}

}  // namespace

FamilyCase Qwen2Case() {
  return {
      .name = "qwen2",
      .tiny = [] { return TinyAs("qwen2"); },
      // As the public checkpoints' safetensors files count them.
      .published = {Published("qwen2.5-7b", 7'615'616'512, 1e-6),
                    Published("qwen2.5-32b", 32'763'876'352, 1e-5)},
      .flops = LlamaFlops,
      .size_layout = [](ModelConfig& c, LayoutSizes&) { PadVocabulary(AsDecoder(c)); },
      .parts = LlamaParts,
  };
}

}  // namespace trainyard::testing
