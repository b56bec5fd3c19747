#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/optimizer/clip.h"

namespace trainyard::cuda {
namespace {

__global__ void ClipKernel(StepState* state) {
  const double norm = std::sqrt(state->grad_norm_squared);
  const double factor = state->clip_norm / (norm + 1e-6);
  state->grad_norm = norm;
  state->clip_factor = state->clip_norm > 0 && factor < 1 ? factor : 1.0;
  state->finite = std::isfinite(state->loss) && std::isfinite(norm) ? 1 : 0;
}

}  // namespace

void Clip(Exec& exec, const ClipArgs& args) { Launch(exec, {1, 1}, ClipKernel, args.state); }

}  // namespace trainyard::cuda
