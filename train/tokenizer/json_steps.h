// Reads the steps of tokenizer.json: objects with a "type", of which some contain others. A type
// that is not known is refused by its name. INVALID_ARGUMENT names the field.

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/tokenizer/decoder.h"
#include "train/tokenizer/normalizer.h"
#include "train/tokenizer/pre_tokenizer.h"

namespace trainyard {

// All of them take null for a step that is not there.
absl::StatusOr<Normalizer> ReadNormalizer(const nlohmann::json& json);

struct ReadPreTokenizerSteps {
  PreTokenizer steps;
  bool byte_level = false;  // The last step makes bytes of the words.
};
absl::StatusOr<ReadPreTokenizerSteps> ReadPreTokenizer(const nlohmann::json& json);

// Refuses null: without a decoder, the text that was encoded does not come back.
absl::StatusOr<TokenDecoder> ReadDecoder(const nlohmann::json& json);

// The ids around a text of the post-processor.
struct TemplateIds {
  std::vector<int32_t> prefix, suffix;
};
absl::StatusOr<TemplateIds> ReadPostProcessor(const nlohmann::json& json);

// The expression with which GPT-2 cuts words, and ByteLevel, if nothing else is said.
inline constexpr char kGpt2Expression[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace trainyard
