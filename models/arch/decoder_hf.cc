#include "models/arch/decoder_hf.h"

#include <nlohmann/json.hpp>

#include "common/check.h"
#include "models/arch/config.h"

namespace trainyard {

HfTable DecoderHf(const std::string& model_type, const std::string& architecture) {
  HfTable table{.model_type = model_type, .architecture = architecture, .keys = {}};
  table.keys = {
      {"num_hidden_layers", "layers"},
      {"hidden_size", "hidden"},
      {"intermediate_size", "ffn"},
      {"num_attention_heads", "heads"},
      {"num_key_value_heads", "kv_heads"},
      {"head_dim", "head_dim"},
      {"vocab_size", "vocab"},
      {.key = "pad_token_id", .field = "padding_token", .absent = int64_t{-1}, .is_token = true},
      {"max_position_embeddings", "max_seq"},
      {"rms_norm_eps", "norm_eps", 1e-6},
      {"tie_word_embeddings", "tied", false},
      {"attention_dropout", "attention_dropout", 0.0}};
  table.rope_keys = {{"rope_theta", "rope_base", 10'000.0}};
  table.fixed = {{"hidden_act", "\"silu\""}};
  return table;
}

HfKey HfOriginalLength(const char* field) {
  return {.key = "original_max_position_embeddings",
          .field = field,
          .derived = [](const ModelConfig& c) -> FieldValue { return FactsOf(c).max_sequence; },
          .also_at_top = true};
}

// All wavelengths are longer than one token, so the scaling of Llama 3.1 with an original context
// of one token stretches all of them whole.
std::vector<HfRopeScaling> HfLlamaScalings() {
  const char* const factor = "rope_scaling.factor";
  const HfKey factor_key = {.key = "factor", .field = factor, .nonzero = true};
  return {{.type = "linear",
           .factor = factor,
           .keys = {factor_key},
           .meant = {{"rope_scaling.low_freq_factor", 1.0},
                     {"rope_scaling.high_freq_factor", 4.0},
                     {"rope_scaling.original_max_seq", int64_t{1}}}},
          {.type = "llama3",
           .factor = factor,
           .keys = {factor_key,
                    {"low_freq_factor", "rope_scaling.low_freq_factor"},
                    {"high_freq_factor", "rope_scaling.high_freq_factor"},
                    HfOriginalLength("rope_scaling.original_max_seq")}}};
}

FieldValue HfHeads(const ModelConfig& config) { return FactsOf(config).sizes.heads; }

FieldValue HfHeadDim(const ModelConfig& config) {
  const FormulaSizes sizes = FactsOf(config).sizes;
  return sizes.heads > 0 ? sizes.hidden / sizes.heads : 0;
}

void HfWithoutWindows(HfTable& table) {
  table.fixed.push_back({"use_sliding_window", "false"});
  table.derived.push_back({"layer_types", [](const ModelConfig& config) {
                             return nlohmann::json(FactsOf(config).layers, "full_attention");
                           }});
  // Of windows that use_sliding_window would switch on.
  table.ignored.insert(table.ignored.end(), {{"max_window_layers"}, {"sliding_window"}});
}

HfKey& KeyOf(HfTable& table, absl::string_view field) {
  for (HfKey& key : table.keys) {
    if (key.field == field) return key;
  }
  CHECK(false) << table.model_type << " has no key for " << field;
  std::abort();
}

}  // namespace trainyard
