#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

PublishedModel Published(const char* preset, double parameters, double active, double max_seq) {
  return {.preset = preset,
          .parameters = parameters,
          .active = active,
          .numbers = {{"rope_base", 1e6}, {"max_seq", max_seq}, {"tied", 0}, {"norm_eps", 1e-5}}};
}

}  // namespace

FamilyCase MixtralCase() {
  return {
      .name = "mixtral",
      .tiny = [] { return TinyMoeAs("mixtral"); },
      // As the public checkpoints' safetensors files count them. The active ones are published as
      // 12.9 and 39 billion.
      .published = {Published("mixtral-8x7b", 46'702'792'704, 12'879'925'248, 32768),
                    Published("mixtral-8x22b", 140'620'634'112, 39'152'031'744, 65536)},
      .flops = LlamaFlops,
      .parts = LlamaParts,
  };
}

}  // namespace trainyard::testing
