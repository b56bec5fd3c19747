// Gemma 3, the text model: a decoder in which every sixth layer attends to all tokens and the
// others to a window, with another base of the rotary wavelengths. It has zero-centred RMSNorm
// before and after each part of a block and in query and key heads, GeGLU, a scale of attention of
// its own, and an embedding that is multiplied by the root of its width and shared with the output
// projection.
//
// Source: arXiv:2503.19786, section 2 and table 1; shapes as in the released config.json files of
// google/gemma-3-1b-pt, -4b-pt, -12b-pt and -27b-pt. The last three are text models within others
// that read images, too. Parameter names are those of gemma-3-1b-pt.
// Letters: T tokens on this rank, D model width.
#include "models/families/gemma3.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"

namespace trainyard {
namespace {

// The scaling of Llama 3.1 stretches all wavelengths that are longer than the original context. All
// are longer than one token.
ops::RopeTable RopeOf(const Gemma3Config& c, bool global) {
  if (!global) return {.base = c.local_rope_base};
  return {.base = c.rope_base, .factor = c.rope_factor, .original_max_seq = 1};
}

Attention AttentionOf(const Gemma3Config& c, int64_t layer, const std::string& name) {
  const bool global = c.is_global(layer);
  AttentionOptions options = DecoderAttentionOptions(c);
  options.rope = RopeOf(c, global);
  options.mask = {.window = global ? 0 : c.window};
  options.qk_norm = QkNorm(name, c.head_dim, c.norm_eps, GainForm::kZeroCentred);
  options.scale = 1 / std::sqrt(double(c.query_pre_attn_scalar));
  return DecoderAttention(c, name, options);
}

class Gemma3Block {
 public:
  using Norm = ZeroCentredRmsNorm;

  Gemma3Block(const Gemma3Config& c, int64_t layer, const std::string& name)
      : config_(c),
        before_attention_(name + ".input_layernorm", c.hidden, c.norm_eps),
        attention_(AttentionOf(c, layer, name + ".self_attn")),
        after_attention_(name + ".post_attention_layernorm", c.hidden, c.norm_eps),
        before_mlp_(name + ".pre_feedforward_layernorm", c.hidden, c.norm_eps),
        mlp_(DecoderMlp(c, name + ".mlp", Activation::kGeGlu)),
        after_mlp_(name + ".post_feedforward_layernorm", c.hidden, c.norm_eps) {}

  Value operator()(Recorder& recorder, Value x_TD) const {
    recorder.set_label("attention");
    const Value mixed_TD = attention_(recorder, before_attention_(recorder, x_TD));
    x_TD = AddBranch(recorder, config_, "attention", x_TD, after_attention_(recorder, mixed_TD));
    recorder.set_label("mlp");
    const Value fed_TD = mlp_(recorder, before_mlp_(recorder, x_TD));
    return AddBranch(recorder, config_, "mlp", x_TD, after_mlp_(recorder, fed_TD));
  }

 private:
  DecoderConfig config_;
  Norm before_attention_;
  Attention attention_;
  Norm after_attention_;
  Norm before_mlp_;
  Mlp mlp_;
  Norm after_mlp_;
};

class Gemma3 final : public Decoder<Gemma3Block, Gemma3Config> {
 public:
  explicit Gemma3(const Gemma3Config& c)
      : Decoder(c, {.embedding_scale = std::sqrt(double(c.hidden))}) {}
};

constexpr DecoderTraits kTraits = {.rope_scaling = false};

void Visit(ModelConfig& config, FieldVisit visit) {
  Gemma3Config& c = config.As<Gemma3Config>();
  VisitDecoder(kTraits, c, visit);
  visit({.name = "global_every",
         .help = "One of so many layers, the last of them, attends to all tokens.",
         .whole = {.most = kMaxLayers}},
        &c.global_every);
  visit({.name = "window",
         .help = "Tokens that the other layers attend to, the query's own included.",
         .whole = {.most = kMaxSequence}},
        &c.window);
  visit({.name = "local_rope_base",
         .help = "Base of the rotary wavelengths of layers with a window.",
         .real = {.least = 1, .most = 1e12, .note = "usual: 10000"},
         .may_differ = MayDiffer::kAtStart},
        &c.local_rope_base);
  visit({.name = "rope_factor",
         .help = "Stretches all rotary wavelengths of the other layers; 0: none.",
         .real = {.least = 0, .most = 1e6, .zero = "none", .note = "usual: 8"},
         .may_differ = MayDiffer::kAtStart},
        &c.rope_factor);
  visit({.name = "query_pre_attn_scalar",
         .help = "Attention scores are divided by its root; head_dim unless given.",
         .whole = {.most = kMaxHidden}},
        &c.query_pre_attn_scalar);
}

void Complete(const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
              ModelConfig& config) {
  const Gemma3Config& old = before.As<Gemma3Config>();
  Gemma3Config& c = config.As<Gemma3Config>();
  CompleteDecoder(old, given, problems, c);
  if (c.head_dim != old.head_dim && !given.contains("query_pre_attn_scalar")) {
    c.query_pre_attn_scalar = c.head_dim;
  }
}

Gemma3Config Defaults() {
  Gemma3Config c;
  c.max_seq = 131072;
  c.norm_eps = 1e-6;
  c.rope_base = 1'000'000;
  c.tied = true;
  return c;
}

Gemma3Config Gemma3_1b() {
  Gemma3Config c = Defaults();
  c.layers = 26;
  c.hidden = 1152;
  c.ffn = 6912;
  c.heads = 4;
  c.kv_heads = 1;
  c.head_dim = 256;
  c.vocab = 262144;
  c.max_seq = 32768;
  return c;
}

// A model whose context is 131072 tokens long. It has half as many key/value heads as heads.
Gemma3Config Long(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  Gemma3Config c = Defaults();
  c.layers = layers;
  c.hidden = hidden;
  c.ffn = ffn;
  c.heads = heads;
  c.kv_heads = heads / 2;
  c.head_dim = 256;
  c.vocab = 262208;
  c.window = 1024;
  c.rope_factor = 8;
  return c;
}

Gemma3Config Gemma3_27b() {
  Gemma3Config c = Long(62, 5376, 32, 21504);
  c.head_dim = 128;
  c.query_pre_attn_scalar = 168;
  return c;
}

// Later releases of transformers write an object of rotary parameters for each kind of layers. This
// function moves them to the keys of earlier releases. A parameter that has no such key, or that
// contradicts it, is refused: it goes to the settings of the layers without a window, where no key
// has its name.
nlohmann::json WithFlatRope(nlohmann::json json) {
  const auto rope = json.find("rope_parameters");
  if (rope == json.end() || !rope->is_object()) return json;
  const nlohmann::json local = rope->value("sliding_attention", nlohmann::json());
  nlohmann::json flat = rope->value("full_attention", nlohmann::json());
  if (!flat.is_object() || !local.is_object()) return json;
  for (const auto& [key, value] : local.items()) {
    const nlohmann::json earlier = json.value("rope_local_base_freq", nlohmann::json());
    if (key == "rope_theta" && (earlier.is_null() || earlier == value)) {
      json["rope_local_base_freq"] = value;
    } else if (key != "rope_type" || value != "default") {
      flat["sliding_attention." + key] = value;
    }
  }
  for (const auto& [key, value] : rope->items()) {
    if (key != "full_attention" && key != "sliding_attention") flat[key] = value;
  }
  json["rope_parameters"] = std::move(flat);
  return json;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("gemma3_text", "Gemma3ForCausalLM");
  KeyOf(table, "tied").absent = true;
  KeyOf(table, "head_dim").absent = int64_t{256};
  KeyOf(table, "padding_token").absent = int64_t{0};
  KeyOf(table, "padding_token").derived = [](const ModelConfig&) -> FieldValue {
    return int64_t{-1};  // If the key is null.
  };
  table.keys.insert(table.keys.end(),
                    {{.key = "sliding_window_pattern",
                      .field = "global_every",
                      .absent = int64_t{6},
                      .alias = "_sliding_window_pattern"},
                     {"sliding_window", "window", int64_t{4096}},
                     {"query_pre_attn_scalar", "query_pre_attn_scalar", int64_t{256}}});
  table.rope_keys = {{"rope_theta", "rope_base", 1e6},
                     {"rope_local_base_freq", "local_rope_base", 1e4}};
  table.rope_scalings = {{.type = "linear",
                          .factor = "rope_factor",
                          .keys = {{.key = "factor", .field = "rope_factor", .nonzero = true}}}};
  table.fixed = {{"hidden_activation", "\"gelu_pytorch_tanh\""},
                 {"attention_bias", "false"},
                 {"use_bidirectional_attention", "false"}};
  table.derived = {{"layer_types", [](const ModelConfig& config) {
                      nlohmann::json types = nlohmann::json::array();
                      const Gemma3Config& c = config.As<Gemma3Config>();
                      for (int64_t i = 0; i < c.layers; ++i) {
                        types.push_back(c.is_global(i) ? "full_attention" : "sliding_attention");
                      }
                      return types;
                    }}};
  table.ignored = {{"cache_implementation"}};
  table.rewritten = WithFlatRope;
  return table;
}

}  // namespace

Family Gemma3Family() {
  Family family = DecoderFamily<kTraits, Gemma3, Gemma3Config>(
      {.name = "gemma3",
       .activation = "geglu",
       .norm = "rmsnorm1p",
       .defaults = Defaults(),
       .presets = {{"gemma3-1b", {}, Gemma3_1b()},
                   {"gemma3-4b", {}, Long(34, 2560, 8, 10240)},
                   {"gemma3-12b", {}, Long(48, 3840, 16, 15360)},
                   {"gemma3-27b", {}, Gemma3_27b()}},
       .hf = HuggingFace()});
  family.visit = Visit;
  family.complete = Complete;
  return family;
}

}  // namespace trainyard
