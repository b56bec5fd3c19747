// The parts that Llama and later architectures share: embedding, attention, RMSNorm, output
// projection, the order of the blocks, and the parameter names of the public checkpoints. The
// architectures differ in the MLP of their blocks.

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

// The initial distributions of the public implementations: the first for weights that read the
// residual value, the second for weights whose products are added to the residual value.
Init DecoderInputInit();
Init DecoderOutputInit(const DecoderConfig& config);

// Returns the options that the configuration sets in every family. Each family sets positions and
// masks itself.
AttentionOptions DecoderAttentionOptions(const DecoderConfig& config);

// Returns the attention of a block. `name` is the prefix of the parameters' names, for example
// "model.layers.0.self_attn".
Attention DecoderAttention(const DecoderConfig& config, const std::string& name,
                           const std::optional<QkNorm>& qk_norm = {});

// A decoder whose blocks are `Layer`s. Layer is constructed from the config, the number of the
// layer and the prefix of its parameters' names, for example (config, 0, "model.layers.0"). Its
// operator() takes and returns the residual value. A family that adds fields derives its Config
// from DecoderConfig.
template <typename Layer, typename Config = DecoderConfig>
class Decoder final : public LanguageModel {
 public:
  explicit Decoder(const Config& c)
      : LanguageModel(c.vocab),
        config_(c),
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

// The facts about a family of decoders that DecoderTraits does not contain.
struct DecoderFamilyOptions {
  std::string name, activation, norm;
  bool bias = false;
  DecoderConfig defaults;  // For an architecture given inline; sizes are 0.
  std::vector<DecoderPreset> presets;
  std::optional<HfTable> hf = {};
};

// Makes the family whose configuration is a DecoderConfig and whose models are `DecoderModel`s.
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
  family.hf = options.hf;
  return family;
}

}  // namespace trainyard
