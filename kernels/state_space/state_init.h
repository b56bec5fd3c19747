// Initial values of the parameters of a state space, by global element index, so that they do not
// depend on the mesh or the sharding:
//
//   kDecay:  y[i] = log(first + i + 1)
//   kSteps:  y[i] = log(exp(s) - 1), so that softplus(y[i]) = s,
//            s = max(floor, least (most / least)^u),  u = Uniform(state->seed, stream, first + i)
//
// Uniform is defined in common/rng.h. Source: Gu & Dao 2023, arXiv:2312.00752, section 3.6.

#pragma once

#include <cmath>

#include "common/host_device.h"
#include "common/rng.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

// The steps, which are log-uniform in [least, most].
struct StepRange {
  double least = 0;
  double most = 0;
  double floor = 0;
  bool operator==(const StepRange&) const = default;
};

enum class StateInitKind : uint8_t { kDecay, kSteps };

struct StateInitArgs {
  Tensor y;  // [n]  f64 | f32 | bf16, out
  StateInitKind kind;
  int64_t first = 0;                 // The global index of y[0].
  StepRange steps = {};              // For kSteps; 0 < least <= most.
  uint64_t stream = 0;               // HashName() of the parameter's global name
  const StepState* state = nullptr;  // device memory; gives the seed
};

inline void Check(const StateInitArgs& args) {
  ExpectFloat("state_init y", args.y);
  CHECK(args.first >= 0) << "state_init first: " << args.first;
  if (args.kind == StateInitKind::kDecay) return;
  CHECK(args.steps.least > 0 && args.steps.least <= args.steps.most && args.steps.floor >= 0)
      << "state_init steps: from " << args.steps.least << " to " << args.steps.most << ", at least "
      << args.steps.floor;
  CHECK(args.state != nullptr) << "state_init state: none";
}

// Returns y[i].
TRAINYARD_HOST_DEVICE inline double InitialStateValue(const StateInitArgs& args, int64_t i) {
  if (args.kind == StateInitKind::kDecay) return std::log(double(args.first + i + 1));
  const double u = Uniform(args.state->seed, args.stream, uint64_t(args.first + i));
  const double step = args.steps.least * std::exp(u * std::log(args.steps.most / args.steps.least));
  return std::log(std::expm1(step < args.steps.floor ? args.steps.floor : step));
}

}  // namespace trainyard
