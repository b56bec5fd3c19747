// What Llama and the architectures after it have in common but for their blocks' MLP: embedding,
// blocks, RMSNorm, output projection; attention; the public checkpoints' names of all that.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"
#include "models/language_model.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/norm.h"

namespace trainyard {

// The standard deviations of the public implementations: of what reads the model width, and of what
// writes it.
Init DecoderInputInit();
Init DecoderOutputInit(const DecoderConfig& config);

// The options that the configuration sets in every family. Positions and masks are the family's.
AttentionOptions DecoderAttentionOptions(const DecoderConfig& config);

// `name` as in "model.layers.0.self_attn".
Attention DecoderAttention(const DecoderConfig& config, const std::string& name,
                           const std::optional<QkNorm>& qk_norm = {});

// A layer is made of (config, 0, "model.layers.0"); its operator() takes and gives the residual
// value. A family with fields of its own has a Config that is derived from DecoderConfig.
template <typename Layer, typename Config = DecoderConfig>
class Decoder final : public LanguageModel {
 public:
  explicit Decoder(const Config& c)
      : config_(c),
        embedding_("model.embed_tokens", c.vocab, c.hidden, DecoderInputInit()),
        norm_("model.norm", c.hidden, c.norm_eps),
        output_(c.tied ? "model.embed_tokens" : "lm_head", c.vocab, c.hidden, DecoderInputInit()) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.max_seq; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return embedding_.Embed(recorder, tokens);
  }
  Carried Block(Recorder& recorder, int64_t layer, const Carried& x_TD) const override {
    return Layer(config_, layer, absl::StrCat("model.layers.", layer))(recorder, x_TD.only());
  }
  Projection Head(Recorder& recorder, const Carried& x_TD) const override {
    return {.x = norm_(recorder, x_TD.only()), .weight = output_.Weight(recorder)};
  }

 private:
  Config config_;
  VocabularyTable embedding_;
  RmsNorm norm_;
  VocabularyTable output_;
};

struct DecoderPreset {
  std::string name;
  std::vector<std::string> aliases;
  DecoderConfig config;
};

// What a family of decoders adds to its traits.
struct DecoderFamilyOptions {
  std::string name, activation, norm;
  bool bias = false;
  DecoderConfig defaults;  // Of an architecture given inline; sizes are 0.
  std::vector<DecoderPreset> presets;
};

// The family whose models are made of a DecoderConfig as `DecoderModel`s.
template <DecoderTraits traits, typename DecoderModel>
Family DecoderFamily(const DecoderFamilyOptions& options) {
  Family family;
  family.name = options.name;
  family.defaults = ModelConfig(options.name, options.defaults);
  family.activation = options.activation;
  family.gated = traits.gated;
  family.norm = options.norm;
  family.bias = options.bias;
  family.position = traits.rope ? "rope" : "learned_absolute";
  for (const DecoderPreset& preset : options.presets) {
    family.presets.push_back(
        {preset.name, preset.aliases, ModelConfig(options.name, preset.config)});
  }
  family.visit = [](ModelConfig& config, FieldVisit visit) {
    VisitDecoder(traits, config.As<DecoderConfig>(), visit);
  };
  family.complete = [](const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
                       ModelConfig& config) {
    CompleteDecoder(before.As<DecoderConfig>(), given, problems, config.As<DecoderConfig>());
  };
  family.check = [](const ModelConfig& config, FieldProblems& problems) {
    CheckDecoder(traits, config.family(), config.As<DecoderConfig>(), problems);
  };
  family.facts = [](const ModelConfig& config) { return DecoderFacts(config.As<DecoderConfig>()); };
  family.create = [](const ModelConfig& config) -> std::unique_ptr<Model> {
    return std::make_unique<DecoderModel>(config.As<DecoderConfig>());
  };
  return family;
}

}  // namespace trainyard
