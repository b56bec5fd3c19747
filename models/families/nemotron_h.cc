// Nemotron-H and Nemotron 3 (Nano, Super): Mamba-2, attention without positions, mixtures of
// experts and MLPs, in an order that a pattern of letters gives. Each layer is one of these, with a
// norm before it and the residual value around it. MLPs and experts have a squared ReLU and no
// gate. A sigmoid scores the experts and a bias balances them, as in DeepSeek-V3. In Super the
// experts read and write narrower vectors (models/layers/moe.h).
//
// Source: NVIDIA 2025, arXiv:2504.03624, section 2 (Nemotron-H), and the reports on Nemotron 3;
// shapes as in NVIDIA/Megatron-LM's recipes of Nemotron 3 and the released config.json files.
// Parameter names are those of the public checkpoints. The prediction of further tokens is not
// part of the model. Letters: T tokens on this rank, D model width.
#include "models/families/nemotron_h.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/text.h"
#include "kernels/state_space/causal_conv.h"
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"
#include "models/layers/mamba.h"

namespace trainyard {

int64_t NemotronHConfig::count(char letter) const {
  return std::count(hybrid_pattern.begin(), hybrid_pattern.end(), letter);
}

namespace {

constexpr char kMamba = 'M', kExperts = 'E', kAttention = '*', kMlp = '-';
constexpr char kLetters[] = "ME*-";

Mamba MambaOf(const NemotronHConfig& c, const std::string& name) {
  return Mamba(name, {.hidden = c.hidden,
                      .heads = c.mamba_heads,
                      .groups = c.mamba_groups,
                      .head_dim = c.mamba_head_dim,
                      .state = c.mamba_state,
                      .taps = c.mamba_taps,
                      .norm_eps = c.norm_eps,
                      .min_step = c.mamba_min_step,
                      .in = DecoderInputInit(),
                      .out = DecoderOutputInit(c)});
}

class NemotronHBlock {
 public:
  using Norm = RmsNorm;

  NemotronHBlock(const NemotronHConfig& c, int64_t layer, const std::string& name)
      : config_(c),
        norm_(name + ".norm", c.hidden, c.norm_eps),
        mixer_(MixerOf(c, layer, name + ".mixer")) {}

  Value operator()(Recorder& recorder, Value x_TD, Value& load) const {
    recorder.set_label(std::holds_alternative<Attention>(mixer_) ? "attention"
                       : std::holds_alternative<Mamba>(mixer_)   ? "mamba"
                                                                 : "mlp");
    const Value y_TD = norm_(recorder, x_TD);
    const auto* const experts = std::get_if<Moe>(&mixer_);
    return AddBranch(recorder, config_, "mixer", x_TD,
                     experts != nullptr ? (*experts)(recorder, y_TD, load) : Plain(recorder, y_TD));
  }

 private:
  using Mixer = std::variant<Mamba, Moe, Attention, Mlp>;

  // The output of a mixer without experts.
  Value Plain(Recorder& recorder, Value y_TD) const {
    if (const auto* const mamba = std::get_if<Mamba>(&mixer_)) return (*mamba)(recorder, y_TD);
    if (const auto* const mlp = std::get_if<Mlp>(&mixer_)) return (*mlp)(recorder, y_TD);
    return std::get<Attention>(mixer_)(recorder, y_TD);
  }

  static Mixer MixerOf(const NemotronHConfig& c, int64_t layer, const std::string& name) {
    switch (c.hybrid_pattern[size_t(layer)]) {
      case kMamba:
        return MambaOf(c, name);
      case kExperts:
        return Moe(name, *c.moe, c.hidden, DecoderMoeInit(c),
                   {.activation = Activation::kSquaredRelu});
      case kAttention:
        return DecoderAttention(c, name, DecoderAttentionOptions(c));
      default:
        return DecoderMlp(c, name, Activation::kSquaredRelu);
    }
  }

  DecoderConfig config_;
  Norm norm_;
  Mixer mixer_;
};

class NemotronH : public Decoder<NemotronHBlock, NemotronHConfig> {
 public:
  explicit NemotronH(const NemotronHConfig& c)
      : Decoder(c, {.embedding = "backbone.embeddings",
                    .layers = "backbone.layers.",
                    .norm = "backbone.norm_f"}) {}
};

constexpr DecoderTraits kTraits = {
    .rope = false, .rope_scaling = false, .gated = false, .experts = true};

// Sizes that only some letters use may be 0 in a model without these letters.
void VisitShared(NemotronHConfig& c, FieldVisit visit) {
  const bool experts = c.count(kExperts) > 0;
  VisitDecoder(kTraits, c, [&](FieldRule rule, const FieldRef& field) {
    const absl::string_view name = rule.name;
    if (name == "ffn" || name == "rope_base") return;
    if (name == "layers") rule.required = false;  // hybrid_pattern says how many.
    if (absl::StartsWith(name, "moe.")) {
      rule.required = false;
      if (!experts) rule.whole.least = 0;
    }
    visit(rule, field);
  });
}

void VisitMamba(NemotronHConfig& c, FieldVisit visit) {
  const int64_t least = c.count(kMamba) > 0 ? 1 : 0;
  visit({.name = "mamba_heads",
         .help = "Heads of a Mamba-2 layer; a multiple of mamba_groups.",
         .whole = {.least = least, .most = kMaxHeads},
         .over_tensor = OverTensor::kDivided},
        &c.mamba_heads);
  visit({.name = "mamba_head_dim",
         .help = "Width of a Mamba-2 head.",
         .whole = {.least = least, .most = kMaxHeadDim}},
        &c.mamba_head_dim);
  visit({.name = "mamba_groups",
         .help = "Groups of heads with the same projections into the state and out of it.",
         .whole = {.least = least, .most = kMaxHeads},
         .over_tensor = OverTensor::kDivided},
        &c.mamba_groups);
  visit({.name = "mamba_state",
         .help = "Dims of the state of each column of a head.",
         .whole = {.least = least, .most = kMaxHidden}},
        &c.mamba_state);
  visit({.name = "mamba_taps",
         .help = "Tokens that the convolution reads.",
         .whole = {.least = 2, .most = kMaxConvTaps}},
        &c.mamba_taps);
  visit({.name = "mamba_min_step",
         .help = "Steps of the state are at least so long.",
         .real = {.least = 0, .most = 1, .zero = "no limit", .note = "usual: 0, 0.001"},
         .may_differ = MayDiffer::kAtStart},
        &c.mamba_min_step);
}

void Visit(ModelConfig& config, FieldVisit visit) {
  NemotronHConfig& c = config.As<NemotronHConfig>();
  visit({.name = "hybrid_pattern",
         .help = "A letter for each layer: M Mamba-2, E experts, * attention, - MLP.",
         .text = "letters M, E, * and -",
         .required = true,
         .may_differ = MayDiffer::kInSubset},
        &c.hybrid_pattern);
  VisitShared(c, visit);
  visit({.name = "ffn",
         .help = "Width of the MLPs (-).",
         .whole = {.least = c.count(kMlp) > 0 ? 1 : 0, .most = kMaxFfn},
         .over_tensor = c.count(kMlp) > 0 ? OverTensor::kDivided : OverTensor::kWhole},
        &c.ffn);
  visit({.name = "moe_latent",
         .help = "Width of the vectors that experts read and write; 0: that of the model.",
         .whole = {.least = 0, .most = kMaxHidden}},
        &c.moe->latent);
  VisitMamba(c, visit);
}

// The pattern without unknown letters. Letters in lower case were meant.
std::string KnownLetters(absl::string_view pattern) {
  std::string known;
  for (const char c : pattern) {
    const char letter = absl::ascii_toupper(static_cast<unsigned char>(c));
    if (absl::StrContains(kLetters, letter)) known += letter;
  }
  return known;
}

void CheckPattern(const NemotronHConfig& c, FieldProblems& problems) {
  const std::string& pattern = c.hybrid_pattern;
  const size_t unknown = pattern.find_first_not_of(kLetters);
  if (unknown != pattern.npos) {
    return problems.Add("hybrid_pattern",
                        "letters M (Mamba-2), E (experts), * (attention) and - (MLP)",
                        absl::StrCat("'", VisibleUtf8(ValidUtf8(pattern.substr(unknown, 1))),
                                     "' as letter ", unknown + 1),
                        CutUtf8(KnownLetters(pattern), size_t(kMaxLayers)));
  }
  if (pattern.empty() || pattern.size() > size_t(kMaxLayers)) {
    return problems.Add("hybrid_pattern", absl::StrCat("1 to ", kMaxLayers, " letters"),
                        absl::StrCat(pattern.size()));
  }
  if (problems.Legal({"layers"}) && c.layers != int64_t(pattern.size())) {
    problems.Add("layers", absl::StrCat(pattern.size(), ", the letters of hybrid_pattern"),
                 c.layers, pattern.size());
  }
}

void CheckFields(const ModelConfig& config, FieldProblems& problems) {
  const NemotronHConfig& c = config.As<NemotronHConfig>();
  CheckPattern(c, problems);
  CheckDecoder(kTraits, config.family(), c, problems);
  if (problems.Legal({"mamba_heads", "mamba_groups"}) && c.count(kMamba) > 0 &&
      c.mamba_heads % c.mamba_groups != 0) {
    problems.Add("mamba_groups", absl::StrCat("a divisor of mamba_heads = ", c.mamba_heads),
                 c.mamba_groups, NearestDivisor(c.mamba_heads, c.mamba_groups));
  }
}

// Of the number of layers and the pattern, the one that is not given follows from the other: fewer
// layers are the first ones.
void Complete(const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
              ModelConfig& config) {
  NemotronHConfig& c = config.As<NemotronHConfig>();
  CompleteDecoder(before.As<NemotronHConfig>(), given, problems, c);
  if (!given.contains("hybrid_pattern")) {
    const int64_t most = int64_t(c.hybrid_pattern.size());
    c.hybrid_pattern.resize(size_t(std::clamp<int64_t>(c.layers, 0, most)));
  } else if (!given.contains("layers")) {
    c.layers = int64_t(c.hybrid_pattern.size());
  }
}

// The elements of the matrices that one token goes through, without the gate.
int64_t MoeWeights(const NemotronHConfig& c) {
  const MoeConfig& moe = *c.moe;
  const int64_t width = moe.latent > 0 ? moe.latent : c.hidden;
  return 2 *
         (moe.top_k * width * moe.expert_ffn + c.hidden * moe.shared_ffn + c.hidden * moe.latent);
}

ModelFacts Facts(const ModelConfig& config) {
  const NemotronHConfig& c = config.As<NemotronHConfig>();
  const int64_t experts = c.count(kExperts), dense = c.count(kMlp);
  ModelFacts facts = DecoderFacts(c);
  facts.experts->layers = experts;
  if (experts == 0) facts.experts.reset();
  if (c.count(kMamba) > 0) facts.convolved_tokens = c.mamba_taps - 1;
  FormulaSizes& sizes = facts.sizes;
  sizes.attention_layers = c.count(kAttention);
  sizes.mamba_layers = c.count(kMamba);
  sizes.mamba_width = c.mamba_heads * c.mamba_head_dim;
  sizes.mamba_heads = c.mamba_heads;
  sizes.mamba_groups = c.mamba_groups;
  sizes.mamba_state = c.mamba_state;
  sizes.automodel_heads_of_hidden = true;
  // In a model with experts and MLPs, the layers with experts count for the MLPs, too.
  sizes.mlp_layers = experts > 0 ? experts : dense;
  if (sizes.mlp_layers > 0) {
    sizes.mlp_weights = (experts * MoeWeights(c) + dense * 2 * c.hidden * c.ffn) / sizes.mlp_layers;
  }
  return facts;
}

NemotronHConfig Defaults() {
  NemotronHConfig c;
  c.max_seq = 4096;
  c.hybrid_pattern = "ME*-";
  c.moe = MoeConfig{.router = RouterScoring::kSigmoid, .expert_bias = true};
  return c;
}

// What the models of Nemotron 3 share.
NemotronHConfig Nemotron3(const std::string& pattern, int64_t hidden, int64_t expert_ffn) {
  NemotronHConfig c = Defaults();
  c.hybrid_pattern = pattern;
  c.layers = int64_t(pattern.size());
  c.hidden = hidden;
  c.ffn = expert_ffn;  // Not used: there is no MLP.
  c.heads = 32;
  c.kv_heads = 2;
  c.head_dim = 128;
  c.vocab = 131072;
  c.max_seq = 262144;
  c.mamba_head_dim = 64;
  c.mamba_groups = 8;
  c.mamba_state = 128;
  c.moe->expert_ffn = expert_ffn;
  c.moe->shared_experts = 1;
  c.moe->shared_ffn = 2 * expert_ffn;
  c.moe->aux_loss = 1e-4;
  c.moe->aux_loss_scope = BalanceScope::kSequence;
  return c;
}

NemotronHConfig Nano() {
  NemotronHConfig c = Nemotron3("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 1856);
  c.mamba_heads = 64;
  c.moe->experts = 128;
  c.moe->top_k = 6;
  c.moe->routed_scaling = 2.5;
  return c;
}

NemotronHConfig Super() {
  NemotronHConfig c = Nemotron3(
      "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
      4096, 2688);
  c.mamba_heads = 128;
  c.moe->experts = 512;
  c.moe->top_k = 22;
  c.moe->latent = 1024;
  c.moe->routed_scaling = 5;
  return c;
}

constexpr char kPatternKey[] = "hybrid_override_pattern";

// Releases of `transformers` name the layers in a list, by words of two generations. Earlier files
// have the pattern itself. A file with both, or with other words, is left as it is.
nlohmann::json Rewritten(nlohmann::json json) {
  const std::vector<std::pair<const char*, char>> words = {
      {"linear_attention", kMamba}, {"mamba", kMamba}, {"full_attention", kAttention},
      {"attention", kAttention},    {"moe", kExperts}, {"mlp", kMlp}};
  for (const char* key : {"layers_block_type", "layer_types"}) {
    const auto list = json.find(key);
    if (list == json.end() || !list->is_array() || json.contains(kPatternKey)) continue;
    std::string pattern;
    for (const nlohmann::json& layer : *list) {
      const auto word = std::find_if(words.begin(), words.end(),
                                     [&](const auto& known) { return layer == known.first; });
      if (word == words.end()) return json;
      pattern += word->second;
    }
    json.erase(list);
    json[kPatternKey] = pattern;
  }
  return json;
}

// With the values that `transformers` takes for absent keys. It adds no loss for the load of
// experts, whatever keys there are.
std::vector<HfKey> Keys() {
  return {
      {kPatternKey, "hybrid_pattern"},
      {"hidden_size", "hidden"},
      {"intermediate_size", "ffn", int64_t{21504}},
      {"num_attention_heads", "heads", int64_t{32}},
      {.key = "num_key_value_heads", .field = "kv_heads", .absent = int64_t{8}, .derived = HfHeads},
      {"head_dim", "head_dim", int64_t{128}},
      {"vocab_size", "vocab"},
      {"max_position_embeddings", "max_seq", int64_t{4096}},
      {"layer_norm_epsilon", "norm_eps", 1e-5},
      {"attention_dropout", "attention_dropout", 0.0},
      {"mamba_num_heads", "mamba_heads", int64_t{128}},
      {"mamba_head_dim", "mamba_head_dim", int64_t{64}},
      {"n_groups", "mamba_groups", int64_t{8}},
      {"ssm_state_size", "mamba_state", int64_t{128}},
      {"conv_kernel", "mamba_taps", int64_t{4}},
      {"time_step_min", "mamba_min_step", 0.001},
      {.key = "n_routed_experts",
       .field = "moe.experts",
       .absent = int64_t{8},
       .alias = "num_local_experts"},
      {"num_experts_per_tok", "moe.top_k", int64_t{2}},
      {"moe_intermediate_size", "moe.expert_ffn", int64_t{7688}},
      {.key = "moe_latent_size", .field = "moe_latent", .absent = int64_t{0}, .nonzero = true},
      {.key = "n_shared_experts",
       .field = "moe.shared_experts",
       .absent = int64_t{1},
       .nonzero = true},
      {.key = "moe_shared_expert_intermediate_size",
       .field = "moe.shared_ffn",
       .absent = int64_t{7688},
       .nonzero = true},
      {"n_group", "moe.groups", int64_t{1}},
      {"topk_group", "moe.topk_groups", int64_t{1}},
      {"norm_topk_prob", "moe.norm_topk", true},
      {"routed_scaling_factor", "moe.routed_scaling", 1.0}};
}

HfTable HuggingFace() {
  HfTable table{.model_type = "nemotron_h", .architecture = "NemotronHForCausalLM", .keys = Keys()};
  table.fixed = {{"attention_bias", "false"},
                 {"hidden_dropout", "0.0"},
                 {"mamba_hidden_act", "\"silu\""},
                 {"mamba_proj_bias", "false"},
                 {"mlp_bias", "false"},
                 {"mlp_hidden_act", "\"relu2\""},
                 {"residual_in_fp32", "false"},
                 {"tie_word_embeddings", "false"},
                 // Some releases take the lower limit of steps from here, others time_step_min.
                 {"time_step_limit", R"([0.0, {"__float__": "Infinity"}])"},
                 {"use_bias", "false"},
                 {"use_conv_bias", "true"}};
  table.in_memory = {"backbone.", "model."};
  const auto head_dim = [](const ModelConfig& config) {
    return nlohmann::json(FactsOf(config).sizes.head_dim);
  };
  const auto norm_eps = [](const ModelConfig& config) {
    return nlohmann::json(config.As<NemotronHConfig>().norm_eps);
  };
  table.derived = {
      {"num_hidden_layers",
       [](const ModelConfig& config) { return nlohmann::json(FactsOf(config).layers); }},
      // Of the releases before `transformers` had the family.
      {.key = "attention_head_dim", .value = head_dim, .written = false},
      {.key = "rms_norm_eps", .value = norm_eps, .written = false}};
  // How models are computed, initialised or asked for text; keys that `transformers` does not read.
  table.ignored = {{"chunk_size"},
                   {"expand"},
                   {"mamba_ssm_cache_dtype"},
                   {"moe_shared_expert_overlap"},
                   {"mtp_hybrid_override_pattern"},
                   {"mtp_layers_block_type"},
                   {"norm_eps"},
                   {"num_logits_to_keep"},
                   {"num_nextn_predict_layers"},
                   {"partial_rotary_factor"},
                   {"rescale_prenorm_residual"},
                   {"rope_theta"},
                   {"router_aux_loss_coef"},
                   {"time_step_floor"},
                   {"time_step_max"},
                   {"time_step_rank"},
                   {"use_mamba_kernels"}};
  table.further_layers = "num_nextn_predict_layers";
  table.further_absent = 0;
  table.further_tensors = "mtp.";
  table.rewritten = Rewritten;
  return table;
}

}  // namespace

Family NemotronHFamily() {
  Family family = DecoderFamily<kTraits, NemotronH, NemotronHConfig>(
      {.name = "nemotron_h",
       .activation = "squared_relu",
       .norm = "rmsnorm",
       .position = "none",
       .defaults = Defaults(),
       .presets = {{"nemotron3-nano-30b", {}, Nano()}, {"nemotron3-super-120b", {}, Super()}},
       .hf = HuggingFace()});
  family.visit = Visit;
  family.complete = Complete;
  family.check = CheckFields;
  family.facts = Facts;
  return family;
}

}  // namespace trainyard
