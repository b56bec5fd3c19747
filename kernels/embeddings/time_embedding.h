// Writes sinusoids of the time of each sample. A diffusion model reads from them how noisy the
// sample is.
//
//   frequency[i]  = 10000^(-i / (W/2 - 1))      for i < W/2
//   y[b, i]       = cos(time[b] frequency[i])
//   y[b, W/2 + i] = sin(time[b] frequency[i])
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5. The order of the elements and the
// last frequency are those of diffusers' Timesteps(flip_sin_to_cos=True, downscale_freq_shift=1).
// Letters: B samples, W width. The sinusoids are computed in f64. The results are bitwise
// deterministic for any number of threads.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct TimeEmbeddingArgs {
  ConstTensor time;  // [B]     i32
  Tensor y;          // [B, W]  out, f64 | f32 | bf16; W is even and at least 4
};

inline void Check(const TimeEmbeddingArgs& args) {
  const int64_t w = ExpectColumns("time_embedding y", args.y);
  ExpectFloat("time_embedding y", args.y);
  CHECK(w % 2 == 0 && w >= 4) << "time_embedding y: width " << w << ", legal are even ones from 4";
  ExpectElements("time_embedding time", args.time, DType::kI32, args.y.shape.rows());
}

}  // namespace trainyard
