// What the cases of decoders share.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/families/family_case.h"

namespace trainyard::testing {

// Two layers of 4 dims a head.
ModelConfig Tiny(absl::string_view family, int64_t heads, int64_t kv_heads);
// A family that has the fields of Llama. Grouped queries: two query heads share a key/value head.
// heads * head_dim differs from hidden.
ModelConfig TinyAs(absl::string_view family, bool tied = false);
// Two of six experts for each token; as many key/value heads as TinyAs.
ModelConfig TinyMoeAs(absl::string_view family);
// Scores of the enlarged weights are of the cap's size.
ModelConfig Capped(ModelConfig config);

// Where the closed form of a decoder's FLOPs differs from that of Llama.
struct DecoderForm {
  double attention_weights = 0;  // Of a layer; 0: those of query, key and value heads, and output.
  double attention_width = 0;    // Of scores and values together; 0: of the query heads, twice.
  int64_t dense_layers = -1;     // The first, before those with experts. -1: none, or all.
  // The window of a layer's attention; 0: all tokens up to the query. Unset: 0 in all layers.
  std::function<int64_t(int64_t layer)> window = nullptr;
};
double DecoderFlops(const ModelConfig& config, double sequence, const DecoderForm& form);
double LlamaFlops(const ModelConfig& config, double sequence);

// The parts of a decoder that jobs freeze, with the embedding's name and the beginning of the names
// of the first layer.
std::vector<FrozenPart> DecoderParts(const ModelConfig& config, const std::string& embedding,
                                     const std::string& first_layer);
std::vector<FrozenPart> LlamaParts(const ModelConfig& config);  // With the names of Llama.

// A normalised head of two dims can only turn: its gradient would be a difference of nearly equal
// terms.
inline constexpr int64_t kNormedHeadDim = 4;

// Pads the vocabulary with rows that stand for no token.
void PadVocabulary(DecoderConfig& config);

}  // namespace trainyard::testing
