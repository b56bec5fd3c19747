// Bound by launches: all that is read are a few numbers for each token. A block sums the tokens of
// one side: the block of the token with which the side begins here. Other blocks end at once.
#include "kernels/cuda/context.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/loss/preference.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

struct Sides {
  const int32_t* of_token;
  const int32_t* targets;
  int64_t tokens, of_sample;  // Of all samples, and of one.
  int64_t count;              // Sides of a sample.
  Failure fail = {};

  __device__ void Check(int64_t t) const {
    if (of_token[t] >= -1 && of_token[t] < count) return;
    fail("preference sides: side % at %, a sample has %", of_token[t], t, count);
  }
  // The place of token t's side among those of all samples. The token must have a side.
  __device__ int64_t Place(int64_t t) const { return t / of_sample * count + of_token[t]; }
};

template <typename Args>
Sides SidesOf(const Args& args) {
  const int64_t tokens = args.targets.elements();
  return {.of_token = args.sides.template as<int32_t>(),
          .targets = args.targets.template as<int32_t>(),
          .tokens = tokens,
          .of_sample = tokens / args.sums.shape[0],
          .count = args.sums.shape[1]};
}

template <typename A>
__global__ void __launch_bounds__(kThreads)
    SumsKernel(Sides sides, const A* log_probs, const double* reference, double* sums) {
  for (int64_t begin = blockIdx.x; begin < sides.tokens; begin += gridDim.x) {
    if (threadIdx.x == 0) sides.Check(begin);
    const int32_t side = sides.of_token[begin];
    const int64_t sample = begin / sides.of_sample;
    const bool goes_on = begin % sides.of_sample != 0 && sides.of_token[begin - 1] == side;
    if (side < 0 || goes_on) continue;
    double of_side[3] = {0, 0, 0};
    const int64_t end = (sample + 1) * sides.of_sample;
    for (int64_t t = begin + threadIdx.x; t < end && sides.of_token[t] == side; t += blockDim.x) {
      of_side[1] += reference[t];
      if (sides.targets[t] < 0) continue;
      of_side[0] += double(log_probs[t]);
      of_side[2] += 1;
    }
    BlockSums(of_side);
    if (threadIdx.x != 0) continue;
    double* const out = sums + sides.Place(begin) * 3;
    for (int i = 0; i < 3; ++i) out[i] = of_side[i];  // Unrolled: the sums stay in registers.
  }
}

template <typename A>
void Sums(Exec& exec, const PreferenceSumsArgs& args) {
  double* const sums = args.sums.as<double>();
  ThrowIfError(cudaMemsetAsync(sums, 0, args.sums.bytes(), StreamOf(exec)), "preference");
  const Sides sides = SidesOf(args);
  Launch(exec, {std::min(sides.tokens, kMultiprocessors * 64), kThreads}, SumsKernel<A>, sides,
         args.log_probs.as<A>(), args.reference.as<double>(), sums);
}

struct Pairs {
  const double* sums;
  int64_t count;
  PreferenceMethod method;
  double beta;

  __device__ PreferenceTerms Terms(int64_t pair) const {
    return TermsOf(method, beta, sums + pair * 6, sums + pair * 6 + 3);
  }
};

// One block, because of the sums.
__global__ void __launch_bounds__(kThreads) AddKernel(Pairs pairs, StepState* state) {
  double of_all[5] = {0, 0, 0, 0, 0};
  for (int64_t i = threadIdx.x; i < pairs.count; i += blockDim.x) {
    if (pairs.sums[i * 6 + 2] == 0) continue;
    const PreferenceTerms terms = pairs.Terms(i);
    of_all[0] += terms.loss;
    of_all[1] -= pairs.sums[i * 6];
    of_all[2] += terms.chosen_reward;
    of_all[3] += terms.rejected_reward;
    of_all[4] += terms.chosen_reward > terms.rejected_reward ? 1 : 0;
  }
  BlockSums(of_all);
  if (threadIdx.x != 0) return;
  const double scale = state->loss_scale;
  state->loss += scale * of_all[0];
  if (pairs.method == PreferenceMethod::kOrpo) {
    state->answer_loss += state->answer_scale * of_all[1];
  }
  state->chosen_reward += scale * of_all[2];
  state->rejected_reward += scale * of_all[3];
  state->reward_accuracy += scale * of_all[4];
}

template <typename A>
struct GradientBody {
  Sides sides;
  Pairs pairs;
  const StepState* state;
  A* dlog_probs;

  __device__ void operator()(int64_t t) const {
    sides.Check(t);
    double factor = 0;
    if (sides.of_token[t] >= 0 && sides.targets[t] >= 0) {
      const bool chosen = sides.of_token[t] % 2 == 0;
      const PreferenceTerms terms = pairs.Terms(sides.Place(t) / 2);
      factor = state->loss_scale * (chosen ? terms.dchosen : terms.drejected);
      if (chosen && pairs.method == PreferenceMethod::kOrpo) factor -= state->answer_scale;
    }
    dlog_probs[t] = A(factor);
  }
};

template <typename A>
void Gradient(Exec& exec, const PreferenceLossArgs& args, const Pairs& pairs) {
  ForEach(exec, args.targets.elements(),
          GradientBody<A>{.sides = SidesOf(args),
                          .pairs = pairs,
                          .state = args.state,
                          .dlog_probs = args.dlog_probs.as<A>()});
}

}  // namespace

void PreferenceSums(Exec& exec, const PreferenceSumsArgs& args) {
  args.log_probs.dtype == DType::kF64 ? Sums<double>(exec, args) : Sums<float>(exec, args);
}

void PreferenceLoss(Exec& exec, const PreferenceLossArgs& args) {
  const Pairs pairs{.sums = args.sums.as<double>(),
                    .count = args.sums.elements() / 6,
                    .method = args.method,
                    .beta = args.beta};
  if (args.adds) Launch(exec, {1, kThreads}, AddKernel, pairs, args.state);
  args.dlog_probs.dtype == DType::kF64 ? Gradient<double>(exec, args, pairs)
                                       : Gradient<float>(exec, args, pairs);
}

}  // namespace trainyard::cuda
