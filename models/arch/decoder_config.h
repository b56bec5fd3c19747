// The configuration of Llama and of the decoders that differ from Llama in their MLP, their norms
// or their positions. The functions of such a family (models/arch/registry.h) call the functions
// below with the family's traits.

#pragma once

#include <cstdint>
#include <optional>

#include "models/arch/config.h"
#include "models/layers/moe_config.h"

namespace trainyard {

// The scaling of rotary wavelengths that Llama 3.1 introduced (kernels/attention/rope.h).
struct RopeScaling {
  double factor = 0;  // 0: none.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_seq = 8192;
};

struct DecoderConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;  // Width of the MLP; not used if every MLP is a mixture of experts.
  int64_t heads = 0;
  int64_t kv_heads = 0;  // Divides heads.
  int64_t head_dim = 0;  // Even.
  int64_t vocab = 0;
  int64_t vocab_multiple = 1;  // See vocab_padding().
  int64_t padding_token = -1;  // Its row of the embedding gets no gradient as an input; -1: none.
  int64_t max_seq = 0;
  double norm_eps = 1e-5;
  double rope_base = 0;  // 0: the family has no rotary positions.
  bool tied = false;     // The output projection shares the embedding.
  // Attention scores become attention_soft_cap tanh(score / attention_soft_cap); 0: they stay.
  double attention_soft_cap = 0;
  // Probabilities of dropout in training: of the weights of attention, and of what the embedding,
  // attention and the MLP add to the residual value. 0: none.
  double attention_dropout = 0;
  double hidden_dropout = 0;
  RopeScaling rope_scaling = {};
  std::optional<MoeConfig> moe = {};  // Set in families with experts.

  // Rows that embedding and head have in memory beyond the vocabulary, which stand for no token.
  // With them, the number of rows is a multiple of vocab_multiple. No checkpoint has them.
  int64_t vocab_padding() const {
    return (vocab_multiple - vocab % vocab_multiple) % vocab_multiple;
  }
};

// The properties that are the same for all models of a family.
struct DecoderTraits {
  bool rope = true;             // Rotary positions.
  bool rope_scaling = true;     // Rotary positions may be scaled as in Llama 3.1.
  bool position_table = false;  // max_seq is the size of a parameter.
  bool grouped_queries = true;  // kv_heads may be less than heads.
  bool gated = true;            // The MLP has a gate matrix.
  bool experts = false;         // MLPs are mixtures of experts, all of them or the later ones.
  // Experts: the weights of a token's experts are a softmax over these experts' logits, and there
  // are neither shared experts nor groups. The family has no fields for these, and no ffn.
  bool plain_router = false;
};

// Calls visit(rule, field) for each field of a family with these traits.
void VisitDecoder(const DecoderTraits& traits, DecoderConfig& config, FieldVisit visit);
// Sets the fields that follow from the given ones:
// - `hidden` or `heads` set head_dim to hidden / heads, which must be a whole number.
// - `heads` sets kv_heads to the same number if kv_heads was equal to heads before.
// - moe.shared_experts or moe.expert_ffn set moe.shared_ffn to their product.
void CompleteDecoder(const DecoderConfig& before, const GivenFields& given, FieldProblems& problems,
                     DecoderConfig& config);
// The last of these rules alone.
void CompleteMoe(const GivenFields& given, MoeConfig& moe);
// Adds the problems that concern several fields; CheckMoe those of the fields of experts.
void CheckMoe(const MoeConfig& moe, FieldProblems& problems);
void CheckDecoder(const DecoderTraits& traits, absl::string_view family,
                  const DecoderConfig& config, FieldProblems& problems);
// Returns the facts about a model in which all layers have experts or none has. A family with other
// models corrects the facts.
ModelFacts DecoderFacts(const DecoderConfig& config);

}  // namespace trainyard
