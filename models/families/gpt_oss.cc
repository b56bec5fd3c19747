// gpt-oss: a decoder in which every second layer attends to a window and the others to all tokens.
// It has a sink in every head's softmax, biases everywhere, and mixtures of experts with a clamped
// SwiGLU.
//
// Source: OpenAI 2025, arXiv:2508.10925, section 2; shapes as in the released config.json files.
// The public checkpoint has one tensor for all experts of a layer, in which the rows of gate and up
// alternate. Here each expert's matrices have their own names, as in Qwen3-MoE; import divides the
// tensor. The weights of a token's experts are the softmax over the logits of these experts. This
// equals the softmax over all logits, normalised over the chosen experts
// (kernels/experts/router.h).
#include "models/families/gpt_oss.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"

namespace trainyard {
namespace {

ops::RopeTable RopeOf(const GptOssConfig& c) {
  return {.base = c.rope_base,
          .yarn = {.factor = c.yarn_factor,
                   .beta_fast = c.yarn_beta_fast,
                   .beta_slow = c.yarn_beta_slow,
                   .original_context = c.yarn_original_max_seq}};
}

Attention AttentionOf(const GptOssConfig& c, int64_t layer, const std::string& name) {
  AttentionOptions options = DecoderAttentionOptions(c);
  options.rope = RopeOf(c);
  options.mask = {.window = layer % 2 == 0 ? c.window : 0};
  options.sinks = {.name = name + ".sinks", .shape = {c.heads}, .init = DecoderInputInit()};
  return DecoderAttention(c, name, options, {.qkv_bias = true, .out_bias = true});
}

class GptOssBlock : public DecoderBlock<Moe> {
 public:
  GptOssBlock(const GptOssConfig& c, int64_t layer, const std::string& name)
      : DecoderBlock(c, name, AttentionOf(c, layer, name + ".self_attn"),
                     Moe(name + ".mlp", *c.moe, c.hidden, DecoderMoeInit(c),
                         {.gate = "router", .bias = true, .swiglu_limit = c.swiglu_limit})) {}
};

constexpr DecoderTraits kTraits = {.rope_scaling = false, .experts = true, .plain_router = true};

void Visit(ModelConfig& config, FieldVisit visit) {
  GptOssConfig& c = config.As<GptOssConfig>();
  VisitDecoder(kTraits, c, visit);
  visit({.name = "window",
         .help = "Tokens that layers 0, 2, 4, ... attend to, the query's own included; 0: all.",
         .whole = {.least = 0, .most = kMaxSequence}},
        &c.window);
  visit({.name = "swiglu_limit",
         .help = "Largest gate and up of an expert; 0: plain SwiGLU.",
         .real = {.least = 0, .most = 1e6, .zero = "none", .note = "usual: 7"}},
        &c.swiglu_limit);
  visit({.name = "yarn_factor",
         .help = "YaRN's stretching of long rotary wavelengths; 0: none.",
         .real = {.least = 1, .most = 1e6, .zero = "none", .note = "usual: 32"},
         .may_differ = MayDiffer::kAtStart},
        &c.yarn_factor);
  visit({.name = "yarn_beta_fast",
         .help = "Wavelengths that turn more often in yarn_original_max_seq are not stretched.",
         .real = {.above = 0, .most = 1e6, .note = "more than yarn_beta_slow; usual: 32"},
         .may_differ = MayDiffer::kAtStart},
        &c.yarn_beta_fast);
  visit({.name = "yarn_beta_slow",
         .help = "Wavelengths that turn less often in yarn_original_max_seq are stretched whole.",
         .real = {.above = 0, .most = 1e6, .note = "usual: 1"},
         .may_differ = MayDiffer::kAtStart},
        &c.yarn_beta_slow);
  visit({.name = "yarn_original_max_seq",
         .help = "Longest sequence before the stretching.",
         .whole = {.most = kMaxSequence},
         .may_differ = MayDiffer::kAtStart},
        &c.yarn_original_max_seq);
}

void CheckFields(const ModelConfig& config, FieldProblems& problems) {
  const GptOssConfig& c = config.As<GptOssConfig>();
  CheckDecoder(kTraits, config.family(), c, problems);
  if (problems.Legal({"yarn_beta_fast", "yarn_beta_slow"}) &&
      c.yarn_beta_fast <= c.yarn_beta_slow) {
    problems.Add("yarn_beta_fast", absl::StrCat("more than yarn_beta_slow = ", c.yarn_beta_slow),
                 c.yarn_beta_fast);
  }
  if (problems.Legal({"yarn_factor", "rope_base"}) && c.yarn_factor > 0 && c.rope_base == 1) {
    problems.Add("rope_base", "more than 1 where yarn_factor stretches", c.rope_base);
  }
}

ModelFacts Facts(const ModelConfig& config) {
  const GptOssConfig& c = config.As<GptOssConfig>();
  ModelFacts facts = DecoderFacts(c);
  facts.sizes.automodel_heads_of_hidden = true;
  facts.sizes.window = c.window;
  if (c.window > 0) facts.sizes.windowed_layers = (c.layers + 1) / 2;
  return facts;
}

GptOssConfig Defaults() {
  GptOssConfig c;
  c.max_seq = 131072;
  c.rope_base = 150'000;
  c.moe = MoeConfig{.aux_loss = 1e-3};
  return c;
}

GptOssConfig GptOss(int64_t layers, int64_t experts) {
  GptOssConfig c = Defaults();
  c.layers = layers;
  c.hidden = 2880;
  c.heads = 64;
  c.kv_heads = 8;
  c.head_dim = 64;
  c.vocab = 201088;
  c.moe->experts = experts;
  c.moe->top_k = 4;
  c.moe->expert_ffn = 2880;
  return c;
}

// The tensors of all experts. Both directions of the matrices are those of `x W`.
std::vector<HfTensorRule> ExpertTensors() {
  const char *const gate_up = "model.layers.#.mlp.experts.gate_up_proj",
                    *const gate_up_bias = "model.layers.#.mlp.experts.gate_up_proj_bias";
  return {{.parameter = "model.layers.#.mlp.experts.@.gate_proj.weight",
           .tensor = gate_up,
           .transposed = true,
           .parts = 2,
           .part = 0,
           .mxfp4 = true},
          {.parameter = "model.layers.#.mlp.experts.@.up_proj.weight",
           .tensor = gate_up,
           .transposed = true,
           .parts = 2,
           .part = 1,
           .mxfp4 = true},
          {.parameter = "model.layers.#.mlp.experts.@.down_proj.weight",
           .tensor = "model.layers.#.mlp.experts.down_proj",
           .transposed = true,
           .mxfp4 = true},
          {.parameter = "model.layers.#.mlp.experts.@.gate_proj.bias",
           .tensor = gate_up_bias,
           .parts = 2,
           .part = 0},
          {.parameter = "model.layers.#.mlp.experts.@.up_proj.bias",
           .tensor = gate_up_bias,
           .parts = 2,
           .part = 1},
          {.parameter = "model.layers.#.mlp.experts.@.down_proj.bias",
           .tensor = "model.layers.#.mlp.experts.down_proj_bias"}};
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("gpt_oss", "GptOssForCausalLM");
  std::erase_if(table.keys, [](const HfKey& key) { return key.field == std::string("ffn"); });
  KeyOf(table, "norm_eps").absent = 1e-5;
  table.keys.insert(
      table.keys.end(),
      {{"num_local_experts", "moe.experts"},
       {.key = "num_experts_per_tok", .field = "moe.top_k", .alias = "experts_per_token"},
       {"intermediate_size", "moe.expert_ffn"},
       {"sliding_window", "window"},
       {.key = "swiglu_limit", .field = "swiglu_limit", .absent = 7.0, .nonzero = true}});
  table.balance = {"router_aux_loss_coef", 1e-3, "output_router_logits"};
  table.rope_keys = {{"rope_theta", "rope_base", 150'000.0}};
  table.rope_scalings = {{.type = "yarn",
                          .factor = "yarn_factor",
                          .keys = {{.key = "factor", .field = "yarn_factor", .nonzero = true},
                                   {"beta_fast", "yarn_beta_fast", 32.0},
                                   {"beta_slow", "yarn_beta_slow", 1.0},
                                   HfOriginalLength("yarn_original_max_seq")},
                          .fixed = {{.key = "truncate", .value = "false", .required = true}}}};
  table.rope_required = true;
  table.fixed.insert(table.fixed.end(), {{"attention_bias", "true"}, {"swiglu_alpha", "1.702"}});
  table.derived = {{"layer_types", [](const ModelConfig& config) {
                      nlohmann::json types = nlohmann::json::array();
                      const GptOssConfig& c = config.As<GptOssConfig>();
                      for (int64_t i = 0; i < c.layers; ++i) {
                        types.push_back(c.window > 0 && i % 2 == 0 ? "sliding_attention"
                                                                   : "full_attention");
                      }
                      return types;
                    }}};
  table.ignored = {{"initial_context_length"}};  // It repeats the original length of YaRN.
  table.tensors = ExpertTensors();
  return table;
}

}  // namespace

Family GptOssFamily() {
  Family family = DecoderFamily<kTraits, Decoder<GptOssBlock, GptOssConfig>, GptOssConfig>(
      {.name = "gpt_oss",
       .activation = "clamped_swiglu",
       .norm = "rmsnorm",
       .bias = true,
       .defaults = Defaults(),
       .presets = {{"gpt-oss-20b", {}, GptOss(24, 32)}, {"gpt-oss-120b", {}, GptOss(36, 128)}},
       .hf = HuggingFace()});
  family.visit = Visit;
  family.check = CheckFields;
  family.facts = Facts;
  return family;
}

}  // namespace trainyard
