#include "kernels/optimizer/clip.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void Clip(Exec&, const ClipArgs& args) {
  StepState& state = *args.state;
  state.grad_norm = std::sqrt(state.grad_norm_squared);
  state.clip_factor =
      state.clip_norm > 0 ? std::min(1.0, state.clip_norm / (state.grad_norm + 1e-6)) : 1.0;
  state.finite = std::isfinite(state.loss) && std::isfinite(state.grad_norm) ? 1 : 0;
}

}  // namespace trainyard::cpu
