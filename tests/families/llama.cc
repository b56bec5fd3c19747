#include <cmath>

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

std::vector<ModelVariant> Variants() {
  return {{"tied", TinyAs("llama", /*tied=*/true)},
          {"capped", Capped(TinyAs("llama"))},
          {.name = "adapted", .config = TinyAs("llama"), .adapted = true},
          {.name = "tied_adapted", .config = TinyAs("llama", true), .adapted = true}};
}

// Also the factor of Llama 3.1's scaling; 0: there is none.
PublishedModel Published(const char* preset, double parameters, double within, double rope_base,
                         double factor, double max_seq, bool tied = false) {
  return {.preset = preset,
          .parameters = parameters,
          .within = within,
          .numbers = {{"rope_base", rope_base},
                      {"rope_scaling.factor", factor},
                      {"rope_scaling.low_freq_factor", 1},
                      {"rope_scaling.high_freq_factor", 4},
                      {"rope_scaling.original_max_seq", 8192},
                      {"max_seq", max_seq},
                      {"tied", tied},
                      {"norm_eps", 1e-5}}};
}

}  // namespace

FamilyCase LlamaCase() {
  return {
      .name = "llama",
      .tiny = [] { return TinyAs("llama"); },
      .variants = Variants,
      // As in the released config.json files. Nobody counts the proxies' parameters.
      .published = {Published("llama2-7b", 6.74e9, 0.005e9, 1e4, 0, 4096),
                    Published("llama2-13b", 13.02e9, 0.005e9, 1e4, 0, 4096),
                    Published("llama2-70b", 68.98e9, 0.005e9, 1e4, 0, 4096),
                    Published("llama3-8b", 8.03e9, 0.005e9, 5e5, 0, 8192),
                    Published("llama3-70b", 70.55e9, 0.005e9, 5e5, 0, 8192),
                    Published("llama3.1-8b", 8.03e9, 0.005e9, 5e5, 8, 131072),
                    Published("llama3.1-70b", 70.55e9, 0.005e9, 5e5, 8, 131072),
                    Published("llama3.1-405b", 405.85e9, 0.01e9, 5e5, 8, 131072),
                    Published("llama3.1-405b-proxy-8", 0, 0, 5e5, 8, 131072),
                    Published("llama3.1-405b-proxy-30", 0, 0, 5e5, 8, 131072),
                    Published("llama3.1-405b-proxy-62", 0, 0, 5e5, 8, 131072),
                    Published("llama3.2-1b", 1.24e9, 0.005e9, 5e5, 32, 131072, true)},
      .wrong_preset = "llama3-8b",
      .wrong = {{"layers", "found 0; nearest 1", [](ModelConfig& c) { AsDecoder(c).layers = 0; }},
                {"layers", "nearest 1024", [](ModelConfig& c) { AsDecoder(c).layers = 5000; }},
                {"hidden", "nearest 65536", [](ModelConfig& c) { AsDecoder(c).hidden = 1 << 20; }},
                {"ffn", "wanted 1 to 262144", [](ModelConfig& c) { AsDecoder(c).ffn = -3; }},
                {"vocab", "wanted 1 to 2097152", [](ModelConfig& c) { AsDecoder(c).vocab = 0; }},
                {"max_seq", "wanted 1 to 1048576",
                 [](ModelConfig& c) { AsDecoder(c).max_seq = 1 << 30; }},
                {"kv_heads", "wanted a divisor of heads = 32, found 5; nearest 4",
                 [](ModelConfig& c) { AsDecoder(c).kv_heads = 5; }},
                {"head_dim", "found 3; nearest 2",
                 [](ModelConfig& c) { AsDecoder(c).head_dim = 3; }},
                {"head_dim", "nearest 256", [](ModelConfig& c) { AsDecoder(c).head_dim = 512; }},
                {"norm_eps", "found nan", [](ModelConfig& c) { AsDecoder(c).norm_eps = NAN; }},
                {"rope_base", "found 0", [](ModelConfig& c) { AsDecoder(c).rope_base = 0; }},
                {"attention_soft_cap",
                 "wanted 0 (none) <= x <= 1e6 (usual: 30, 50), found -1; nearest 0",
                 [](ModelConfig& c) { AsDecoder(c).attention_soft_cap = -1; }}},
      .flops = LlamaFlops,
      .parts = LlamaParts,
  };
}

}  // namespace trainyard::testing
