// GPT-2 and GPT-3: pre-norm decoder with multi-head attention, learned positions, a GELU MLP,
// biases everywhere, and the output projection tied to the embedding.
//
// Source: Radford et al. 2019; Brown et al. 2020, arXiv:2005.14165, table 2.1 (all layers dense).
// Parameter names are those of the public GPT-2 checkpoint. That checkpoint stores matrices
// transposed, [in, out] (its Conv1D layer). Here they are [out, in] as everywhere, and import
// transposes them. Letters: T tokens on this rank, D model width.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder.h"
#include "models/arch/registry.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/mlp.h"
#include "models/layers/norm.h"

namespace trainyard {
namespace {

// The standard deviations of the public implementations.
Init InputInit() { return Init::Normal(0.02); }
Init OutputInit(const DecoderConfig& c) { return Init::Normal(0.02 / std::sqrt(2.0 * c.layers)); }

LinearPart Qkv(const DecoderConfig& c, const std::string& name) {
  const int64_t width = c.heads * c.head_dim;
  return {.name = name, .width = 3 * width, .sections = {width, width, width}};
}

class Gpt3Block {
 public:
  Gpt3Block(const DecoderConfig& c, const std::string& name)
      : config_(c),
        attention_norm_(name + ".ln_1", c.hidden, c.norm_eps),
        attention_(
            DecoderAttentionOptions(c),
            ColumnLinear({Qkv(c, name + ".attn.c_attn")}, c.hidden, /*bias=*/true, InputInit()),
            RowLinear({.name = name + ".attn.c_proj",
                       .in = c.heads * c.head_dim,
                       .out = c.hidden,
                       .bias = true,
                       .init = OutputInit(c)})),
        mlp_norm_(name + ".ln_2", c.hidden, c.norm_eps),
        mlp_(Activation::kGelu,
             ColumnLinear({{name + ".mlp.c_fc", c.ffn}}, c.hidden, /*bias=*/true, InputInit()),
             RowLinear({.name = name + ".mlp.c_proj",
                        .in = c.ffn,
                        .out = c.hidden,
                        .bias = true,
                        .init = OutputInit(c)})) {}

  Value operator()(Recorder& recorder, Value x_TD) const {
    recorder.set_label("attention");
    x_TD = AddBranch(recorder, config_, "attention", x_TD,
                     attention_(recorder, attention_norm_(recorder, x_TD)));
    recorder.set_label("mlp");
    return AddBranch(recorder, config_, "mlp", x_TD, mlp_(recorder, mlp_norm_(recorder, x_TD)));
  }

 private:
  DecoderConfig config_;
  LayerNorm attention_norm_;
  Attention attention_;
  LayerNorm mlp_norm_;
  Mlp mlp_;
};

class Gpt3 final : public LanguageModel {
 public:
  explicit Gpt3(const DecoderConfig& c)
      : LanguageModel(c.vocab),
        config_(c),
        embedding_("transformer.wte", c.vocab, c.hidden, InputInit(), c.vocab_padding()),
        positions_("transformer.wpe", c.max_seq, c.hidden, InputInit()),
        norm_("transformer.ln_f", c.hidden, c.norm_eps),
        output_(c.tied ? "transformer.wte" : "lm_head", c.vocab, c.hidden, InputInit(),
                c.vocab_padding()) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.max_seq; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    const Value words_TD = embedding_.Embed(recorder, tokens, /*scale=*/1, config_.padding_token);
    const Value x_TD = ops::Add(recorder, words_TD, positions_.Embed(recorder, tokens));
    return ops::Dropout(recorder, x_TD, config_.hidden_dropout, "embedding");
  }
  Carried Block(Recorder& recorder, int64_t layer, const Carried& x_TD) const override {
    return Gpt3Block(config_, absl::StrCat("transformer.h.", layer))(recorder, x_TD.only());
  }
  Projection Head(Recorder& recorder, const Carried& x_TD) const override {
    return {.x = norm_(recorder, x_TD.only()), .weight = output_.Weight(recorder)};
  }

 private:
  DecoderConfig config_;
  VocabularyTable embedding_;
  PositionTable positions_;
  LayerNorm norm_;
  VocabularyTable output_;
};

// The MLP is four times as wide as the model.
DecoderConfig Gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return {.layers = layers,
          .hidden = hidden,
          .ffn = 4 * hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .vocab = 50304,  // 50257, rounded up to a multiple of 128.
          .max_seq = 1024,
          .tied = true};
}

DecoderConfig LargeGpt(int64_t layers, int64_t hidden, int64_t heads) {
  DecoderConfig c = Gpt(layers, hidden, heads);
  c.vocab = 51200;  // As the published FLOPs count it.
  c.max_seq = 2048;
  return c;
}

// The directories of GPT-2; there is none of GPT-3. Matrices are [in, out] in them.
HfTable HuggingFace() {
  const FieldValue dropout = 0.1;
  HfTable table{.model_type = "gpt2", .architecture = "GPT2LMHeadModel", .keys = {}};
  table.keys = {
      {"n_layer", "layers"},
      {"n_embd", "hidden"},
      {.key = "n_inner",
       .field = "ffn",
       .derived = [](const ModelConfig& c) -> FieldValue { return 4 * FactsOf(c).sizes.hidden; }},
      {"n_head", "heads"},
      {"vocab_size", "vocab"},
      {"n_positions", "max_seq"},
      {"layer_norm_epsilon", "norm_eps", 1e-5},
      {"tie_word_embeddings", "tied", true},
      {"attn_pdrop", "attention_dropout", dropout},
      {"embd_pdrop", "hidden_dropout", dropout},
      {"resid_pdrop", "hidden_dropout", dropout}};
  table.fixed = {{"activation_function", "\"gelu_new\""},
                 {"scale_attn_weights", "true"},
                 {"scale_attn_by_inverse_layer_idx", "false"},
                 {"add_cross_attention", "false"}};
  table.ignored = {{"n_ctx"},  // It repeats n_positions.
                   {"n_special"},
                   {"output_past"},
                   {"predict_special_tokens"},
                   {"reorder_and_upcast_attn"},  // In which dtype attention is computed.
                   {"summary_activation"},
                   {"summary_first_dropout"},
                   {"summary_proj_to_labels"},
                   {"summary_type"},
                   {"summary_use_proj"},
                   {"task_specific_params"}};
  for (const char* matrix :
       {"transformer.h.#.attn.c_attn.weight", "transformer.h.#.attn.c_proj.weight",
        "transformer.h.#.mlp.c_fc.weight", "transformer.h.#.mlp.c_proj.weight"}) {
    table.tensors.push_back({.parameter = matrix, .tensor = matrix, .transposed = true});
  }
  table.embedding = "transformer.wte.weight";
  table.optional_prefix = "transformer.";
  table.ignored_tensors = {".attn.bias", ".attn.masked_bias"};  // Which tokens see which.
  return table;
}

}  // namespace

Family Gpt3Family() {
  constexpr DecoderTraits kTraits = {
      .rope = false, .position_table = true, .grouped_queries = false, .gated = false};
  return DecoderFamily<kTraits, Gpt3>({.name = "gpt3",
                                       .activation = "gelu",
                                       .norm = "layernorm",
                                       .position = "learned_absolute",
                                       .bias = true,
                                       .defaults = {.max_seq = 2048, .tied = true},
                                       .presets = {{"gpt3-5b", {}, LargeGpt(24, 4096, 32)},
                                                   {"gpt3-20b", {}, LargeGpt(44, 6144, 48)},
                                                   {"gpt3-175b", {}, LargeGpt(96, 12288, 96)},
                                                   {"gpt2-124m", {}, Gpt(12, 768, 12)},
                                                   {"gpt2-350m", {}, Gpt(24, 1024, 16)},
                                                   {"gpt2-774m", {}, Gpt(36, 1280, 20)},
                                                   {"gpt2-1558m", {}, Gpt(48, 1600, 25)}},
                                       .hf = HuggingFace()});
}

}  // namespace trainyard
