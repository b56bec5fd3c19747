// The parts of the Hugging Face tables that decoders share.

#pragma once

#include <string>
#include <vector>

#include "models/arch/hugging_face.h"

namespace trainyard {

// The table with the keys of DecoderConfig that all decoders have: sizes, RMSNorm, rotary positions
// and tied heads. A family adds its own, and corrects what an absent key means in it.
HfTable DecoderHf(const std::string& model_type, const std::string& architecture);

// The scalings of rotary wavelengths that a family with the fields rope_scaling.* has.
std::vector<HfRopeScaling> HfLlamaScalings();
// The key for the longest sequence before a scaling; max_position_embeddings if it is absent.
HfKey HfOriginalLength(const char* field);

// What absent keys stand for in some families: as many key/value heads as query heads, and heads
// that together are as wide as the model.
FieldValue HfHeads(const ModelConfig& config);
FieldValue HfHeadDim(const ModelConfig& config);

// Refuses windows, for a family whose config.json has keys for windows that this program does not
// have.
void HfWithoutWindows(HfTable& table);

// The key that the table has for the field, to be corrected. CHECKs that there is one.
HfKey& KeyOf(HfTable& table, absl::string_view field);

}  // namespace trainyard
