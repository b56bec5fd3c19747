// Nemotron-H and Nemotron 3: see nemotron_h.cc.

#pragma once

#include <string>

#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard {

struct NemotronHConfig : DecoderConfig {
  // A letter for each layer: M for Mamba-2, E for a mixture of experts, * for attention, and - for
  // an MLP of width ffn. `layers` is the number of letters.
  std::string hybrid_pattern;
  // The sizes of Mamba-2 (models/layers/mamba.h).
  int64_t mamba_heads = 0;  // A multiple of mamba_groups.
  int64_t mamba_head_dim = 0;
  int64_t mamba_groups = 0;
  int64_t mamba_state = 0;
  int64_t mamba_taps = 4;     // Of the convolution.
  double mamba_min_step = 0;  // Steps are at least so long.

  int64_t count(char letter) const;
};

}  // namespace trainyard
