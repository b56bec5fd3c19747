// Gemma 3, the text model: see gemma3.cc.

#pragma once

#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard {

struct Gemma3Config : DecoderConfig {
  // Layers global_every - 1, 2 global_every - 1, ... attend to all tokens up to the query. The
  // others attend to the last `window` of these, the query's own token included.
  int64_t global_every = 6;
  int64_t window = 512;
  double local_rope_base = 10'000;      // rope_base of the layers with a window.
  double rope_factor = 0;               // Stretches all wavelengths of the other layers; 0: none.
  int64_t query_pre_attn_scalar = 256;  // Scores are divided by its root.

  bool is_global(int64_t layer) const { return (layer + 1) % global_every == 0; }
};

}  // namespace trainyard
