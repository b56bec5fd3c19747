#include "kernels/positions.h"

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void Positions(Exec&, const PositionsArgs& args) {
  int32_t* y = args.y.as<int32_t>();
  for (int64_t i = 0; i < args.y.elements(); ++i) {
    y[i] = int32_t(args.part.position((args.first_row + i) % args.part.rows));
  }
}

}  // namespace trainyard::cpu
