// Which elements dropout keeps: a function of the seed, the step, the place in the model and the
// element's number among all ranks' elements. So the choice does not depend on the layout, and is
// the same if the element is computed again.

#pragma once

#include <cstdint>

#include "common/check.h"
#include "common/host_device.h"
#include "common/rng.h"
#include "kernels/device/step_state.h"

namespace trainyard {

// The choice at one place of the model: the output of one layer, or the probabilities of its
// attention.
struct DropoutPlace {
  double probability = 0;  // 0 <= p < 1
  uint64_t stream = 0;     // Differs from place to place.
};

// The choice in one step. Nothing is dropped where state.step is 0, as in validation.
struct DropoutKey {
  uint64_t key = 0;
  uint64_t threshold = 0;
  double scale = 1;  // 1 / (1 - p): what is kept is multiplied by it.

  DropoutKey() = default;
  TRAINYARD_HOST_DEVICE DropoutKey(const DropoutPlace& place, const StepState& state) {
    if (state.step == 0) return;
    key = RandomBits(state.seed, place.stream, uint64_t(state.step));
    threshold = uint64_t(place.probability * 0x1p64);
    scale = 1 / (1 - place.probability);
  }
  TRAINYARD_HOST_DEVICE bool keeps(uint64_t element) const {
    return Mix(key ^ element) >= threshold;
  }
};

inline void Check(const char* name, const DropoutPlace& place) {
  CHECK(place.probability >= 0 && place.probability < 1)
      << name << " probability: " << place.probability << ", legal are 0 <= p < 1";
}

}  // namespace trainyard
