#include "kernels/experts/expert_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void ExpertOrder(Exec&, const ExpertOrderArgs& args) {
  const int64_t slots = args.experts.elements(), experts = args.counts.elements();
  const int32_t* expert = args.experts.as<int32_t>();
  int32_t* counts = args.counts.as<int32_t>();
  int32_t* order = args.order.as<int32_t>();
  int32_t* place = args.place.as<int32_t>();
  std::fill_n(counts, experts, 0);
  for (int64_t slot = 0; slot < slots; ++slot) {
    CHECK(expert[slot] >= 0 && expert[slot] < experts)
        << "expert_order experts: expert " << expert[slot] << " at " << slot << " of " << experts;
    ++counts[expert[slot]];
  }
  // `counts` is used as the place of each expert's next slot. At the end it is the place where the
  // next expert's slots begin.
  int32_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) begin += std::exchange(counts[e], begin);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int32_t at = counts[expert[slot]]++;
    order[at] = int32_t(slot);
    place[slot] = at;
  }
  for (int64_t e = experts - 1; e > 0; --e) counts[e] -= counts[e - 1];
  if (args.offsets.data == nullptr) return;
  int32_t* offsets = args.offsets.as<int32_t>();
  offsets[0] = 0;
  std::partial_sum(counts, counts + experts, offsets + 1);
}

}  // namespace trainyard::cpu
