#include "kernels/optimizer/split_master.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SplitMaster(Exec& exec, const SplitMasterArgs& args) {
  const auto split = [master = args.master.as<float>(), weights = args.weight.as<bf16>(),
                      remainders = args.remainder.as<int16_t>()](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [weight, remainder] = Split(master[i]);
      weights[i].bits = weight;
      remainders[i] = remainder;
    }
  };
  ParallelElements(exec, args.master.elements(), split);
}

void JoinMaster(Exec& exec, const JoinMasterArgs& args) {
  const auto join = [weights = args.weight.as<bf16>(), remainders = args.remainder.as<int16_t>(),
                     master = args.master.as<float>()](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) master[i] = Join(weights[i].bits, remainders[i]);
  };
  ParallelElements(exec, args.master.elements(), join);
}

}  // namespace trainyard::cpu
