// Nemotron and Nemotron-4: see nemotron.cc.

#pragma once

#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard {

struct NemotronConfig : DecoderConfig {
  // The part of each head's dims that is rotated. The number of these dims is even.
  double rotary_fraction = 0.5;

  int64_t rotary_dims() const;
};

}  // namespace trainyard
