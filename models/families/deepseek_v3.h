// The family of DeepSeek-V3 and Kimi K2.

#pragma once

#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard {

// Of DecoderConfig, kv_heads and head_dim follow from the other fields and are not used, and there
// is no rope_scaling.
struct DeepseekV3Config : DecoderConfig {
  int64_t dense_layers = 0;  // The first layers have an MLP of width ffn instead of experts.
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // Even.
  int64_t v_head_dim = 0;
  double yarn_factor = 0;  // 0: none.
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double yarn_mscale = 1;  // Sharpens attention: see AttentionScale in the .cc file.
  int64_t yarn_original_max_seq = 4096;
};

}  // namespace trainyard
