// DeepSeek-V3, and Kimi K2, which has the same form: multi-head latent attention, and mixtures of
// experts that a sigmoid scores and a bias balances, with shared experts. The first layers have a
// plain MLP. Moonlight has the form, too, without the narrow vector of the queries.
//
// Source: DeepSeek-AI 2024, arXiv:2412.19437, sections 2.1 and 4.2; Kimi K2, arXiv:2507.20534,
// section 2.3; shapes as in the released config.json files. The prediction of further tokens
// (section 2.2) is not part of the model. Letters: T tokens on this rank, D model width.
#include "models/families/deepseek_v3.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/layers/latent_attention.h"
#include "models/layers/moe.h"

namespace trainyard {
namespace {

// YaRN leaves the rotation's length as it is, and sharpens all scores instead.
double AttentionScale(const DeepseekV3Config& c) {
  const double width = double(c.qk_nope_head_dim + c.qk_rope_head_dim);
  const double sharper = c.yarn_factor > 1 ? 0.1 * c.yarn_mscale * std::log(c.yarn_factor) + 1 : 1;
  return sharper * sharper / std::sqrt(width);
}

LatentAttention AttentionOf(const DeepseekV3Config& c, const std::string& name) {
  const YarnRopeScaling yarn = {.factor = c.yarn_factor,
                                .beta_fast = c.yarn_beta_fast,
                                .beta_slow = c.yarn_beta_slow,
                                .original_context = c.yarn_original_max_seq,
                                .magnitude = 1,
                                .whole_pairs = true};
  return LatentAttention(name, {.hidden = c.hidden,
                                .heads = c.heads,
                                .query_rank = c.q_lora_rank,
                                .kv_rank = c.kv_lora_rank,
                                .nope_dim = c.qk_nope_head_dim,
                                .rope_dim = c.qk_rope_head_dim,
                                .value_dim = c.v_head_dim,
                                .rope = {.base = c.rope_base, .yarn = yarn},
                                .scale = AttentionScale(c),
                                .soft_cap = c.attention_soft_cap,
                                .dropout = c.attention_dropout,
                                .in = DecoderInputInit(),
                                .out = DecoderOutputInit(c)});
}

class DeepseekV3Block {
 public:
  using Norm = RmsNorm;

  DeepseekV3Block(const DeepseekV3Config& c, int64_t layer, const std::string& name)
      : config_(c),
        attention_norm_(name + ".input_layernorm", c.hidden, c.norm_eps),
        attention_(AttentionOf(c, name + ".self_attn")),
        mlp_norm_(name + ".post_attention_layernorm", c.hidden, c.norm_eps) {
    if (layer >= c.dense_layers) {
      moe_.emplace(name + ".mlp", *c.moe, c.hidden, DecoderMoeInit(c));
    } else {
      dense_ = DecoderMlp(c, name + ".mlp", Activation::kSwiGlu);
    }
  }

  Value operator()(Recorder& recorder, Value x_TD, Value& load) const {
    recorder.set_label("attention");
    x_TD = AddBranch(recorder, config_, "attention", x_TD,
                     attention_(recorder, attention_norm_(recorder, x_TD)));
    recorder.set_label("mlp");
    const Value y_TD = mlp_norm_(recorder, x_TD);
    return AddBranch(recorder, config_, "mlp", x_TD,
                     moe_ ? (*moe_)(recorder, y_TD, load) : (*dense_)(recorder, y_TD));
  }

 private:
  DecoderConfig config_;
  Norm attention_norm_;
  LatentAttention attention_;
  Norm mlp_norm_;
  std::optional<Moe> moe_;  // This or the dense MLP.
  std::optional<Mlp> dense_;
};

constexpr DecoderTraits kTraits = {.rope_scaling = false, .experts = true};

// Whether the table has the rule of DecoderConfig for this field.
bool IsOurs(absl::string_view name) {
  return name != "ffn" && name != "kv_heads" && name != "head_dim";
}

void VisitWidths(DeepseekV3Config& c, FieldVisit visit) {
  const auto width = [&](const char* name, const char* help, int64_t most, int64_t multiple,
                         int64_t* value) {
    visit({.name = name,
           .help = help,
           .whole = {.least = multiple, .most = most, .multiple = multiple},
           .required = true},
          value);
  };
  visit({.name = "q_lora_rank",
         .help = "Width of the vector that the queries are projected from; 0: that of the model.",
         .whole = {.least = 0, .most = kMaxHidden},
         .required = true},
        &c.q_lora_rank);
  width("kv_lora_rank", "Width of the vector that keys and values are projected from.", kMaxHidden,
        1, &c.kv_lora_rank);
  width("qk_nope_head_dim", "Columns of a query or key head without positions.", kMaxHeadDim, 1,
        &c.qk_nope_head_dim);
  width("qk_rope_head_dim", "Columns of a query or key head with rotary positions.", kMaxHeadDim, 2,
        &c.qk_rope_head_dim);
  width("v_head_dim", "Width of a value head.", kMaxHeadDim, 1, &c.v_head_dim);
}

void VisitYarn(DeepseekV3Config& c, FieldVisit visit) {
  const auto real = [&](const char* name, const char* help, const Interval& legal, double* value) {
    visit({.name = name, .help = help, .real = legal, .may_differ = MayDiffer::kAtStart}, value);
  };
  real("yarn_factor", "YaRN's stretching of long rotary wavelengths; 0: none.",
       {.least = 1, .most = 1e6, .zero = "none", .note = "usual: 40"}, &c.yarn_factor);
  real("yarn_beta_fast",
       "Wavelengths that turn more often in yarn_original_max_seq are not stretched.",
       {.above = 0, .most = 1e6, .note = "at least yarn_beta_slow; usual: 32"}, &c.yarn_beta_fast);
  real("yarn_beta_slow",
       "Wavelengths that turn less often in yarn_original_max_seq are stretched whole.",
       {.above = 0, .most = 1e6, .note = "usual: 1"}, &c.yarn_beta_slow);
  real("yarn_mscale", "Scores are multiplied by (0.1 yarn_mscale ln(yarn_factor) + 1)^2.",
       {.least = 0, .most = 100, .note = "usual: 1"}, &c.yarn_mscale);
  visit({.name = "yarn_original_max_seq",
         .help = "Longest sequence before the stretching.",
         .whole = {.most = kMaxSequence},
         .may_differ = MayDiffer::kAtStart},
        &c.yarn_original_max_seq);
}

void Visit(ModelConfig& config, FieldVisit visit) {
  DeepseekV3Config& c = config.As<DeepseekV3Config>();
  VisitDecoder(kTraits, c, [&](const FieldRule& rule, const FieldRef& field) {
    if (IsOurs(rule.name)) visit(rule, field);
  });
  visit({.name = "dense_layers",
         .help = "Number of first layers with an MLP of width ffn instead of experts.",
         .whole = {.least = 0, .most = kMaxLayers}},
        &c.dense_layers);
  visit({.name = "ffn",
         .help = "Width of the MLP of the first dense_layers layers.",
         .whole = {.least = c.dense_layers > 0 ? 1 : 0, .most = kMaxFfn},
         .over_tensor = OverTensor::kDivided},
        &c.ffn);
  VisitWidths(c, visit);
  VisitYarn(c, visit);
}

void CheckFields(const ModelConfig& config, FieldProblems& problems) {
  const DeepseekV3Config& c = config.As<DeepseekV3Config>();
  if (problems.Legal({"qk_nope_head_dim", "qk_rope_head_dim"}) &&
      c.qk_nope_head_dim + c.qk_rope_head_dim > kMaxHeadDim) {
    const int64_t most = kMaxHeadDim - c.qk_rope_head_dim;
    problems.Add(most > 0 ? "qk_nope_head_dim" : "qk_rope_head_dim",
                 absl::StrCat("heads of at most ", kMaxHeadDim, " columns together"),
                 c.qk_nope_head_dim + c.qk_rope_head_dim, most > 0 ? most : kMaxHeadDim - 2);
  }
  if (problems.Legal({"layers", "dense_layers"}) && c.dense_layers >= c.layers) {
    problems.Add("dense_layers", absl::StrCat("less than layers = ", c.layers), c.dense_layers,
                 c.layers - 1);
  }
  if (problems.Legal({"yarn_beta_fast", "yarn_beta_slow"}) && c.yarn_beta_fast < c.yarn_beta_slow) {
    problems.Add("yarn_beta_fast", absl::StrCat("at least yarn_beta_slow = ", c.yarn_beta_slow),
                 c.yarn_beta_fast);
  }
  if (problems.Legal({"yarn_factor", "rope_base"}) && c.yarn_factor > 0 && c.rope_base == 1) {
    problems.Add("rope_base", "more than 1 where yarn_factor stretches", c.rope_base);
  }
  CheckMoe(*c.moe, problems);
}

ModelFacts Facts(const ModelConfig& config) {
  DeepseekV3Config c = config.As<DeepseekV3Config>();
  c.kv_heads = c.heads;
  c.head_dim = c.qk_nope_head_dim + c.qk_rope_head_dim;
  ModelFacts facts = DecoderFacts(c);
  facts.experts->layers = c.layers - c.dense_layers;
  facts.sizes.value_head_dim = c.v_head_dim;
  const int64_t query_width = c.q_lora_rank > 0 ? c.q_lora_rank : c.hidden;
  facts.sizes.attention_weights = c.hidden * (c.q_lora_rank + c.kv_lora_rank + c.qk_rope_head_dim) +
                                  query_width * c.heads * c.head_dim +
                                  c.kv_lora_rank * c.heads * (c.qk_nope_head_dim + c.v_head_dim) +
                                  c.heads * c.v_head_dim * c.hidden;
  return facts;
}

DeepseekV3Config Defaults() {
  DeepseekV3Config c;
  c.max_seq = 4096;
  c.norm_eps = 1e-6;
  c.rope_base = 10'000;
  c.moe = MoeConfig{.router = RouterScoring::kSigmoid, .expert_bias = true};
  return c;
}

// The sizes that DeepSeek-V3 and Kimi K2 share.
DeepseekV3Config Large() {
  DeepseekV3Config c = Defaults();
  c.layers = 61;
  c.hidden = 7168;
  c.ffn = 18432;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.moe->top_k = 8;
  c.moe->expert_ffn = 2048;
  c.moe->shared_experts = 1;
  c.moe->shared_ffn = 2048;
  c.moe->aux_loss_scope = BalanceScope::kSequence;
  return c;
}

DeepseekV3Config DeepseekV3() {
  DeepseekV3Config c = Large();
  c.heads = 128;
  c.vocab = 129280;
  c.max_seq = 163840;
  c.dense_layers = 3;
  c.moe->experts = 256;
  c.moe->aux_loss = 1e-4;
  c.moe->groups = 8;
  c.moe->topk_groups = 4;
  c.moe->routed_scaling = 2.5;
  c.yarn_factor = 40;
  return c;
}

DeepseekV3Config KimiK2() {
  DeepseekV3Config c = Large();
  c.heads = 64;
  c.vocab = 163840;
  c.max_seq = 131072;
  c.rope_base = 50'000;
  c.dense_layers = 1;
  c.moe->experts = 384;
  c.moe->aux_loss = 1e-3;
  c.moe->routed_scaling = 2.827;
  c.yarn_factor = 32;
  c.yarn_beta_fast = 1;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("deepseek_v3", "DeepseekV3ForCausalLM");
  // As it was released. `transformers` has this type only with files of Python beside it.
  table.other = {.model_type = "kimi_k2", .architecture = "DeepseekV3ForCausalLM"};
  std::erase_if(table.keys, [](const HfKey& key) { return !IsOurs(key.field); });
  table.keys.insert(table.keys.end(),
                    {{"first_k_dense_replace", "dense_layers", int64_t{3}},
                     {"intermediate_size", "ffn"},
                     // Null: queries are not projected through a narrow vector.
                     {.key = "q_lora_rank",
                      .field = "q_lora_rank",
                      .absent = int64_t{1536},
                      .derived = [](const ModelConfig&) -> FieldValue { return int64_t{0}; },
                      .nonzero = true},
                     {"kv_lora_rank", "kv_lora_rank"},
                     {"qk_nope_head_dim", "qk_nope_head_dim"},
                     {"qk_rope_head_dim", "qk_rope_head_dim"},
                     {"v_head_dim", "v_head_dim"},
                     {"n_routed_experts", "moe.experts"},
                     {"num_experts_per_tok", "moe.top_k"},
                     {"moe_intermediate_size", "moe.expert_ffn"},
                     {"n_shared_experts", "moe.shared_experts"},
                     {"n_group", "moe.groups"},
                     {"topk_group", "moe.topk_groups"},
                     {"norm_topk_prob", "moe.norm_topk", true},
                     {"routed_scaling_factor", "moe.routed_scaling", 2.5}});
  // With equal mscale and mscale_all_dim, rotation keeps the length of a vector.
  table.rope_scalings = {
      {.type = "yarn",
       .factor = "yarn_factor",
       .keys = {{.key = "factor", .field = "yarn_factor", .nonzero = true},
                {"beta_fast", "yarn_beta_fast", 32.0},
                {"beta_slow", "yarn_beta_slow", 1.0},
                {.key = "mscale", .field = "yarn_mscale", .nonzero = true},
                {.key = "mscale_all_dim", .field = "yarn_mscale", .nonzero = true},
                HfOriginalLength("yarn_original_max_seq")},
       .fixed = {{"truncate", "true"}}}};
  table.fixed.insert(table.fixed.end(), {{"attention_bias", "false"},
                                         {"moe_layer_freq", "1"},
                                         {"rope_interleave", "true"},
                                         {"scoring_func", "\"sigmoid\""},
                                         {"topk_method", "\"noaux_tc\""}});
  table.derived = {{"num_key_value_heads", [](const ModelConfig& config) {
                      return nlohmann::json(Facts(config).kv_heads);
                    }}};
  // What its authors trained with, and what follows from other keys. `transformers` adds no loss
  // for the load of experts.
  table.ignored = {{"aux_loss_alpha"},           {"ep_size"},     {"head_dim"},
                   {"num_nextn_predict_layers"}, {"qk_head_dim"}, {"seq_aux"}};
  table.further_layers = "num_nextn_predict_layers";
  return table;
}

}  // namespace

Family DeepseekV3Family() {
  Family family =
      DecoderFamily<kTraits, Decoder<DeepseekV3Block, DeepseekV3Config>, DeepseekV3Config>(
          {.name = "deepseek_v3",
           .activation = "swiglu",
           .norm = "rmsnorm",
           .defaults = Defaults(),
           .presets = {{"deepseek-v3-671b", {"deepseek-v3"}, DeepseekV3()},
                       {"kimi-k2", {}, KimiK2()}},
           .hf = HuggingFace()});
  family.visit = Visit;
  family.complete = [](const ModelConfig&, const GivenFields& given, FieldProblems&,
                       ModelConfig& config) {
    CompleteMoe(given, *config.As<DeepseekV3Config>().moe);
  };
  family.check = CheckFields;
  family.facts = Facts;
  return family;
}

}  // namespace trainyard
