// gpt-oss: see gpt_oss.cc.

#pragma once

#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard {

struct GptOssConfig : DecoderConfig {
  // Number of tokens that a query sees in layers 0, 2, 4, ..., the query's own token included. 0:
  // all tokens up to the query, as in the other layers.
  int64_t window = 128;
  double swiglu_limit =
      7;  // Limit in the experts' SwiGLU (kernels/elementwise/scaled_swiglu.h); 0: none.
  // YaRN's scaling of rotary wavelengths (kernels/attention/rope.h).
  double yarn_factor = 32;  // 0: none.
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  int64_t yarn_original_max_seq = 4096;
};

}  // namespace trainyard
