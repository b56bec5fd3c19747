// The configuration of DiT, a diffusion transformer. dit.cc describes the model.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

struct DitConfig {
  int64_t layers = 0;
  int64_t hidden = 0;  // A multiple of 4, since positions are sinusoids of two coordinates.
  int64_t ffn = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t in_channels = 4;   // Channels of the latents. The output has as many.
  int64_t sample_size = 32;  // Height and width of the latents.
  int64_t patch_size = 2;    // Divides sample_size.
  int64_t num_classes = 1000;
  int64_t num_timesteps = 1000;
  double norm_eps = 1e-5;  // eps of the norm before the MLP.

  int64_t grid() const { return sample_size / patch_size; }  // Patches along a side.
  int64_t token_elements() const { return in_channels * patch_size * patch_size; }
};

}  // namespace trainyard
