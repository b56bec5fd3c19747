#include "kernels/attention/positions.h"

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void Positions(Exec&, const PositionsArgs& args) {
  int32_t* y = args.y.as<int32_t>();
  const bool restart = args.document_begins.data != nullptr;
  const int32_t* const begins = restart ? args.document_begins.as<int32_t>() : nullptr;
  for (int64_t i = 0; i < args.y.elements(); ++i) {
    const int64_t row = args.first_row + i;
    y[i] = int32_t(args.part.position(row % args.part.rows)) - (restart ? begins[row] : 0);
  }
}

}  // namespace trainyard::cpu
