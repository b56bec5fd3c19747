// What Llama and the architectures after it have in common but for their blocks' MLP: embedding,
// blocks, RMSNorm, output projection; attention; the public checkpoints' names of all that.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/arch/config.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/norm.h"
#include "models/model.h"

namespace trainyard {

// The standard deviations of the public implementations: of what reads the model width, and of what
// writes it.
Init DecoderInputInit();
Init DecoderOutputInit(const ModelConfig& config);

// `name` as in "model.layers.0.self_attn".
Attention DecoderAttention(const ModelConfig& config, const std::string& name,
                           const std::optional<QkNorm>& qk_norm = {});

// A layer is made of (config, "model.layers.0"); its operator() takes and gives the residual value.
template <typename Layer>
class Decoder final : public Model {
 public:
  explicit Decoder(const ModelConfig& c)
      : config_(c),
        embedding_("model.embed_tokens", c.vocab, c.hidden, DecoderInputInit()),
        norm_("model.norm", c.hidden, c.norm_eps),
        output_(c.tied ? "model.embed_tokens" : "lm_head", c.vocab, c.hidden, DecoderInputInit()) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.max_seq; }
  Value Embed(Recorder& recorder, Value tokens) const override {
    return embedding_.Embed(recorder, tokens);
  }
  Value Block(Recorder& recorder, int64_t layer, Value x_TD) const override {
    return Layer(config_, absl::StrCat("model.layers.", layer))(recorder, x_TD);
  }
  Projection Head(Recorder& recorder, Value x_TD) const override {
    return {.x = norm_(recorder, x_TD), .weight = output_.Weight(recorder)};
  }

 private:
  ModelConfig config_;
  VocabularyTable embedding_;
  RmsNorm norm_;
  VocabularyTable output_;
};

}  // namespace trainyard
