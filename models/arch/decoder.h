// The parts that Llama and later architectures share: embedding, blocks of attention and MLP,
// norms, output projection, and the parameter names of the public checkpoints. A family gives the
// options in which it differs. Letters: T tokens on this rank, D model width.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"
#include "models/language_model.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/mlp.h"
#include "models/layers/moe.h"
#include "models/layers/norm.h"
#include "models/program/ops/model_load.h"

namespace trainyard {

// The initial distributions of the public implementations: the first for weights that read the
// residual value, the second for weights whose products are added to the residual value.
Init DecoderInputInit();
Init DecoderOutputInit(const DecoderConfig& config);

// Returns the options that the fields of DecoderConfig set. Rotary positions are among them if the
// family has a rope_base.
AttentionOptions DecoderAttentionOptions(const DecoderConfig& config);
// The same with normalised query and key heads. `name` is the attention's.
AttentionOptions WithQkNorm(const DecoderConfig& config, const std::string& name);

// Returns x + branch, the new residual value, with the dropout of hidden values on the branch.
// `name` tells the branches of a block apart.
Value AddBranch(Recorder& recorder, const DecoderConfig& config, absl::string_view name, Value x_TD,
                Value branch_TD);

// The properties of attention that are the same for all models of a family.
struct DecoderAttentionForm {
  bool qkv_bias = false;  // The projections of queries, keys and values have biases.
  bool out_bias = false;  // The projection of the result has a bias.
};
// Returns the attention of a block. `name` is the prefix of the parameters' names, for example
// "model.layers.0.self_attn".
Attention DecoderAttention(const DecoderConfig& config, const std::string& name,
                           const AttentionOptions& options, const DecoderAttentionForm& form = {});
// Returns the MLP of a block, without biases. `name` is for example "model.layers.0.mlp".
Mlp DecoderMlp(const DecoderConfig& config, const std::string& name, Activation activation);
// The initial distributions of a mixture of experts.
MoeInit DecoderMoeInit(const DecoderConfig& config);

// A block of the usual form: x + attention(norm(x)), and then the same with `Feed`, which is an Mlp
// or a Moe.
template <typename Feed, typename BlockNorm = RmsNorm>
class DecoderBlock {
 public:
  using Norm = BlockNorm;  // Also of the norm after the last block.

  // `name` is the prefix of the parameters' names, for example "model.layers.0".
  DecoderBlock(const DecoderConfig& c, const std::string& name, Attention attention, Feed feed)
      : config_(c),
        attention_norm_(name + ".input_layernorm", c.hidden, c.norm_eps),
        attention_(std::move(attention)),
        feed_norm_(name + ".post_attention_layernorm", c.hidden, c.norm_eps),
        feed_(std::move(feed)) {}

  // `load`: as of Moe.
  Value operator()(Recorder& recorder, Value x_TD, Value& load) const {
    recorder.set_label("attention");
    x_TD = AddBranch(recorder, config_, "attention", x_TD,
                     attention_(recorder, attention_norm_(recorder, x_TD)));
    recorder.set_label("mlp");
    const Value y_TD = feed_norm_(recorder, x_TD);
    if constexpr (std::is_same_v<Feed, Moe>) {
      return AddBranch(recorder, config_, "mlp", x_TD, feed_(recorder, y_TD, load));
    } else {
      return AddBranch(recorder, config_, "mlp", x_TD, feed_(recorder, y_TD));
    }
  }

 private:
  DecoderConfig config_;
  Norm attention_norm_;
  Attention attention_;
  Norm feed_norm_;
  Feed feed_;
};

// What a decoder has besides its configuration: the factor of embedded tokens, and the names of its
// parameters.
struct DecoderForm {
  double embedding_scale = 1;
  const char* embedding = "model.embed_tokens";
  const char* layers = "model.layers.";  // Prefix of a layer's number.
  const char* norm = "model.norm";
};

// A decoder whose blocks are `Layer`s. Layer is constructed from the config, the number of the
// layer and the prefix of its parameters' names, for example (config, 0, "model.layers.0"). Its
// operator() takes and returns the residual value (with experts, it also takes the load, as Moe
// does), and its Norm is the type of the last norm. A
// family that adds fields derives its Config from DecoderConfig.
template <typename Layer, typename Config = DecoderConfig>
class Decoder : public LanguageModel {
 public:
  explicit Decoder(const Config& c, const DecoderForm& form = {})
      : LanguageModel(c.vocab),
        config_(c),
        form_(form),
        embedding_(form.embedding, c.vocab, c.hidden, DecoderInputInit(), c.vocab_padding()),
        norm_(form.norm, c.hidden, c.norm_eps),
        output_(c.tied ? form.embedding : "lm_head", c.vocab, c.hidden, DecoderInputInit(),
                c.vocab_padding()) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.max_seq; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return ops::Dropout(
        recorder, embedding_.Embed(recorder, tokens, form_.embedding_scale, config_.padding_token),
        config_.hidden_dropout, "embedding");
  }
  Carried Block(Recorder& recorder, int64_t layer, const Carried& before) const override {
    Value load = LoadOf(before);
    const Layer block(config_, layer, absl::StrCat(form_.layers, layer));
    const Value x_TD = [&] {
      if constexpr (std::is_invocable_v<const Layer&, Recorder&, Value, Value&>) {
        return block(recorder, XOf(before), load);
      } else {
        return block(recorder, XOf(before));
      }
    }();
    if (!load.valid()) return x_TD;
    return Carried({{"x", x_TD}, {kLoad, load}});
  }
  Projection Head(Recorder& recorder, const Carried& last) const override {
    const Value load = LoadOf(last);
    if (load.valid()) ops::BalanceLoad(recorder, load);
    return {.x = norm_(recorder, XOf(last)), .weight = output_.Weight(recorder)};
  }

 private:
  static constexpr char kLoad[] = "load";  // Of experts, if all layers are balanced together.

  static Value XOf(const Carried& carried) { return carried.values().front().value; }
  static Value LoadOf(const Carried& carried) {
    return carried.values().size() > 1 ? carried[kLoad] : Value{};
  }

  Config config_;
  DecoderForm form_;
  VocabularyTable embedding_;
  typename Layer::Norm norm_;
  VocabularyTable output_;
};

template <typename Config>
struct DecoderPreset {
  std::string name;
  std::vector<std::string> aliases;
  Config config;
};

// The facts about a family of decoders that DecoderTraits does not contain.
template <typename Config = DecoderConfig>
struct DecoderFamilyOptions {
  std::string name, activation, norm;
  std::string position = "rope";
  bool bias = false;
  Config defaults;  // For an architecture given inline; sizes are 0.
  std::vector<DecoderPreset<Config>> presets;
  std::optional<HfTable> hf = {};
};

// Makes the family whose models are `DecoderModel`s. A family whose Config adds fields must replace
// `visit`, and `check` if rules concern several fields.
template <DecoderTraits traits, typename DecoderModel, typename Config = DecoderConfig>
Family DecoderFamily(const DecoderFamilyOptions<Config>& options) {
  Family family;
  family.name = options.name;
  family.defaults = ModelConfig(options.name, options.defaults);
  family.activation = options.activation;
  family.gated = traits.gated;
  family.norm = options.norm;
  family.bias = options.bias;
  family.position = options.position;
  for (const DecoderPreset<Config>& preset : options.presets) {
    family.presets.push_back(
        {preset.name, preset.aliases, ModelConfig(options.name, preset.config)});
  }
  family.visit = [](ModelConfig& config, FieldVisit visit) {
    VisitDecoder(traits, config.As<Config>(), visit);
  };
  family.complete = [](const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
                       ModelConfig& config) {
    CompleteDecoder(before.As<Config>(), given, problems, config.As<Config>());
  };
  family.check = [](const ModelConfig& config, FieldProblems& problems) {
    CheckDecoder(traits, config.family(), config.As<Config>(), problems);
  };
  family.facts = [](const ModelConfig& config) { return DecoderFacts(config.As<Config>()); };
  family.create = [](const ModelConfig& config) -> std::unique_ptr<Model> {
    return std::make_unique<DecoderModel>(config.As<Config>());
  };
  family.hf = options.hf;
  return family;
}

}  // namespace trainyard
