#include "kernels/iota.h"

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void Iota(Exec&, const IotaArgs& args) {
  int32_t* y = args.y.as<int32_t>();
  for (int64_t i = 0; i < args.y.elements(); ++i) y[i] = int32_t(i % args.period);
}

}  // namespace trainyard::cpu
