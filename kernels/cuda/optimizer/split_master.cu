// Bound by memory: eight bytes for each element.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/optimizer/split_master.h"

namespace trainyard::cuda {
namespace {

struct SplitBody {
  const float* master;
  bf16* weight;
  int16_t* remainder;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    const auto masters = LoadPack<float, kCount>(master + i);
    Pack<bf16, kCount> weights;
    Pack<int16_t, kCount> remainders;
    for (int n = 0; n < kCount; ++n) {
      const SplitWeight split = Split(masters.v[n]);
      weights.v[n].bits = split.weight;
      remainders.v[n] = split.remainder;
    }
    StorePack(weight + i, weights);
    StorePack(remainder + i, remainders);
  }
};

struct JoinBody {
  const bf16* weight;
  const int16_t* remainder;
  float* master;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    const auto weights = LoadPack<bf16, kCount>(weight + i);
    const auto remainders = LoadPack<int16_t, kCount>(remainder + i);
    Pack<float, kCount> masters;
    for (int n = 0; n < kCount; ++n) masters.v[n] = Join(weights.v[n].bits, remainders.v[n]);
    StorePack(master + i, masters);
  }
};

}  // namespace

void SplitMaster(Exec& exec, const SplitMasterArgs& args) {
  const int64_t count = args.master.elements();
  const SplitBody body = {args.master.as<float>(), args.weight.as<bf16>(),
                          args.remainder.as<int16_t>()};
  ForEachPack<bf16>(exec, count, CanPack<bf16>(count, body.master, body.weight, body.remainder),
                    body);
}

void JoinMaster(Exec& exec, const JoinMasterArgs& args) {
  const int64_t count = args.master.elements();
  const JoinBody body = {args.weight.as<bf16>(), args.remainder.as<int16_t>(),
                         args.master.as<float>()};
  ForEachPack<bf16>(exec, count, CanPack<bf16>(count, body.master, body.weight, body.remainder),
                    body);
}

}  // namespace trainyard::cuda
