#include "models/families/nemotron_h.h"

#include <algorithm>

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// A layer of each kind. The experts read narrower vectors; some of Mamba's steps are clamped. The
// widths are such that no unit is near 0, where the second derivative of a squared ReLU jumps.
ModelConfig TinyNemotronH() {
  ModelConfig config = Tiny("nemotron_h", 4, 2);
  NemotronHConfig& c = config.As<NemotronHConfig>();
  c.hybrid_pattern = "ME*-";
  c.layers = 4;
  c.ffn = 20;
  c.mamba_heads = 4;
  c.mamba_head_dim = 3;
  c.mamba_groups = 2;
  c.mamba_state = 5;
  c.mamba_taps = 3;
  c.mamba_min_step = 0.6;
  c.moe = MoeConfig{.experts = 6,
                    .top_k = 3,
                    .expert_ffn = 6,
                    .latent = 7,
                    .shared_experts = 1,
                    .shared_ffn = 4,
                    .router = RouterScoring::kSigmoid,
                    .expert_bias = true,
                    .groups = 3,
                    .topk_groups = 2,
                    .routed_scaling = 2.5};
  return config;
}

// As the public checkpoints' safetensors files count them: 3.2 billion active parameters of Nano
// without the embedding of tokens, and 12.7 billion of Super with the embedding. Fields as in the
// recipes of Megatron-LM and the released config.json files.
PublishedModel Published(const char* preset, double parameters, double active,
                         const char* pattern) {
  return {.preset = preset,
          .parameters = parameters,
          .active = active,
          .numbers = {{"max_seq", 262144},
                      {"tied", 0},
                      {"norm_eps", 1e-5},
                      {"mamba_min_step", 0},
                      {"moe.expert_bias", 1},
                      {"moe.norm_topk", 1}},
          .choices = {{"hybrid_pattern", pattern},
                      {"moe.router", "SIGMOID"},
                      {"moe.aux_loss_scope", "SEQUENCE"}}};
}

// Each layer by its letter.
double TrainingFlops(const ModelConfig& config, double s) {
  const NemotronHConfig& c = config.As<NemotronHConfig>();
  const double h = double(c.hidden), a = double(c.heads), d = double(c.head_dim);
  const double inner = double(c.mamba_heads * c.mamba_head_dim), state = double(c.mamba_state);
  const double mamba =
      h * (3 * inner + 2 * double(c.mamba_groups) * state + double(c.mamba_heads)) + inner * state;
  const double attention = h * d * (2 * a + 2 * double(c.kv_heads)) + a * d * (s + 1);
  const double latent = double(c.moe->latent), width = latent > 0 ? latent : h;
  const double experts = h * double(c.moe->experts) + 2 * h * (double(c.moe->shared_ffn) + latent) +
                         2 * width * double(c.moe->top_k * c.moe->expert_ffn);
  return 6 *
         (double(c.vocab) * h + double(c.count('M')) * mamba + double(c.count('*')) * attention +
          double(c.count('E')) * experts + double(c.count('-')) * 2 * h * double(c.ffn));
}

void Size(ModelConfig& config, LayoutSizes& sizes) {
  NemotronHConfig& c = config.As<NemotronHConfig>();
  c.layers = std::max<int64_t>(3, c.layers);
  c.hybrid_pattern.clear();
  for (int64_t i = 0; i < c.layers; ++i) c.hybrid_pattern += "ME*-"[i % 4];
  c.ffn = 3 * sizes.tensor;
  c.mamba_heads = 2 * sizes.tensor;
  c.mamba_groups = sizes.tensor;
  c.mamba_head_dim = 2;
  c.mamba_state = 3;
  c.mamba_taps = 3;
  c.mamba_min_step = 0.01;  // Longer than some of the initial steps.
  c.norm_eps = 0.01;        // New weights are small (gemma3.cc).
  c.moe->latent = 5;
  // Parts of a sequence are long enough for the convolution.
  sizes.sequence = 4 * sizes.tensor * sizes.context;
  c.max_seq = 2 * sizes.sequence;
}

std::vector<FrozenPart> Parts(const ModelConfig& config) {
  std::vector<FrozenPart> parts =
      DecoderParts(config, "backbone.embeddings.weight", "backbone.layers.0.");
  parts.push_back({"of_mamba", {"*.A_log", "*.conv1d.weight", "*latent_proj*"}, {}});
  return parts;
}

NemotronHConfig& Of(ModelConfig& config) { return config.As<NemotronHConfig>(); }

std::vector<WrongValue> WrongValues() {
  return {{"hybrid_pattern",
           "wanted letters M (Mamba-2), E (experts), * (attention) and - (MLP), found 'm' as "
           "letter 3; nearest MEM*",
           [](ModelConfig& c) { Of(c).hybrid_pattern = "MEm*"; }},
          {"hybrid_pattern", "found 'X' as letter 1; nearest M",
           [](ModelConfig& c) { Of(c).hybrid_pattern = "XM"; }},
          {"hybrid_pattern", "found '?' as letter 2; nearest M",
           [](ModelConfig& c) { Of(c).hybrid_pattern = "M\xff"; }},
          {"hybrid_pattern", "wanted 1 to 1024 letters, found 0",
           [](ModelConfig& c) { Of(c).hybrid_pattern = ""; }},
          {"hybrid_pattern", "wanted 1 to 1024 letters, found 1025",
           [](ModelConfig& c) { Of(c).hybrid_pattern = std::string(1025, '*'); }},
          {"layers", "wanted 52, the letters of hybrid_pattern, found 51; nearest 52",
           [](ModelConfig& c) { Of(c).layers = 51; }},
          {"ffn", "wanted 1 to 262144, found 0; nearest 1",
           [](ModelConfig& c) { Of(c).hybrid_pattern[0] = '-', Of(c).ffn = 0; }},
          {"mamba_heads", "wanted 1 to 1024, found 0; nearest 1",
           [](ModelConfig& c) { Of(c).mamba_heads = 0; }},
          {"mamba_head_dim", "found 257; nearest 256",
           [](ModelConfig& c) { Of(c).mamba_head_dim = 257; }},
          {"mamba_groups", "wanted a divisor of mamba_heads = 64, found 7; nearest 8",
           [](ModelConfig& c) { Of(c).mamba_groups = 7; }},
          {"mamba_state", "found 0; nearest 1", [](ModelConfig& c) { Of(c).mamba_state = 0; }},
          {"mamba_taps", "wanted 2 to 8, found 9; nearest 8",
           [](ModelConfig& c) { Of(c).mamba_taps = 9; }},
          {"mamba_min_step", "found -0.1", [](ModelConfig& c) { Of(c).mamba_min_step = -0.1; }},
          {"moe_latent", "found -1; nearest 0", [](ModelConfig& c) { Of(c).moe->latent = -1; }},
          {"moe.experts", "wanted 1 to 4096, found 0; nearest 1",
           [](ModelConfig& c) { Of(c).moe->experts = 0; }},
          {"moe.groups", "wanted 1 to 128, found 129; nearest 128",
           [](ModelConfig& c) { Of(c).moe->groups = 129; }},
          {"moe.groups", "wanted a divisor of experts = 128, found 96; nearest 128",
           [](ModelConfig& c) { Of(c).moe->groups = 96; }}};
}

}  // namespace

FamilyCase NemotronHCase() {
  return {
      .name = "nemotron_h",
      .as_decoder = [](ModelConfig& c) -> DecoderConfig& { return c.As<NemotronHConfig>(); },
      .tiny = TinyNemotronH,
      .variants =
          [] {
            return std::vector<ModelVariant>{
                {.name = "adapted", .config = TinyNemotronH(), .adapted = true}};
          },
      .published = {Published("nemotron3-nano-30b", 31'577'940'288, 3'580'076'352,
                              "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
                    Published(
                        "nemotron3-super-120b", 120'668'707'840, 12'770'237'440,
                        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
                        "EMEMEMEM*EMEMEMEME")},
      .wrong_preset = "nemotron3-nano-30b",
      .wrong = WrongValues(),
      .flops = TrainingFlops,
      .size_layout = Size,
      .parts = Parts,
      .amplifies_rounding_if_tied = true,
      .fields = {.architecture = R"({"layers": null, "rope_base": null,
                   "moe": {"experts": 6, "top_k": 2, "expert_ffn": 12, "aux_loss": 0.1},
                   "fields": {"hybrid_pattern": "ME*-", "mamba_heads": "4", "mamba_head_dim": "3",
                     "mamba_groups": "2", "mamba_state": "5", "mamba_taps": "4",
                     "mamba_min_step": "0.01", "moe_latent": "7"}})",
                 .changes = {{"hybrid_pattern", "EM*-"},
                             {"mamba_heads", "6"},
                             {"mamba_head_dim", "4"},
                             {"mamba_groups", "4"},
                             {"mamba_state", "6"},
                             {"mamba_taps", "3"},
                             {"mamba_min_step", "0.02"},
                             {"moe_latent", "0"}}},
      // Not multiples of 8: emulated tensor cores would take minutes (kernels/state_scan_test.cc).
      .emulated = {{"layers", 4},
                   {"hybrid_pattern", "ME*-"},
                   {"mamba_heads", 8},
                   {"mamba_head_dim", 4},
                   {"mamba_groups", 4},
                   {"mamba_state", 4},
                   {"moe_latent", 8}},
      .measured = {{"layers", 4},
                   {"ffn", 128},
                   {"hybrid_pattern", "ME*-"},
                   {"mamba_heads", 4},
                   {"mamba_head_dim", 16},
                   {"mamba_groups", 2},
                   {"mamba_state", 16},
                   {"moe_latent", 16}},
      .nf4 = {{"mamba_head_dim", 32}, {"moe_latent", 64}},
  };
}

}  // namespace trainyard::testing
