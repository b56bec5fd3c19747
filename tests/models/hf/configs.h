// Files config.json that the tests of their reading change.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/arch/registry.h"
#include "models/hf/config.h"

namespace trainyard::testing {

inline nlohmann::json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"bos_token_id", 128000},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"initializer_range", 0.02},
          {"intermediate_size", 8192},
          {"max_position_embeddings", 131072},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 16},
          {"num_key_value_heads", 8},
          {"head_dim", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling",
           {{"factor", 32.0},
            {"high_freq_factor", 4.0},
            {"low_freq_factor", 1.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", true},
          {"torch_dtype", "bfloat16"},
          {"vocab_size", 128256}};
}

// The same as later releases of `transformers` write it.
inline nlohmann::json LaterLlama() {
  nlohmann::json later = Llama();
  later["rope_parameters"] = later["rope_scaling"];
  later["rope_parameters"]["rope_theta"] = later["rope_theta"];
  later.erase("rope_scaling");
  later.erase("rope_theta");
  return later;
}

inline nlohmann::json PresetConfig(const char* preset) {
  return *ConfigToHf(FindPreset(preset)->config, nlohmann::json::object());
}

inline std::string RefusalOf(const nlohmann::json& config) {
  return std::string(ConfigFromHf(config).status().message());
}

}  // namespace trainyard::testing
