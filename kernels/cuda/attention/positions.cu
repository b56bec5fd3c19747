#include "kernels/attention/positions.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace trainyard::cuda {
namespace {

struct PositionsBody {
  int32_t* y;
  SequencePart part;
  int64_t first_row;
  const int32_t* begins;

  __device__ void operator()(int64_t i) const {
    const int64_t row = first_row + i;
    y[i] = int32_t(part.position(row % part.rows)) - (begins != nullptr ? begins[row] : 0);
  }
};

}  // namespace

void Positions(Exec& exec, const PositionsArgs& args) {
  const bool restart = args.document_begins.data != nullptr;
  const int32_t* const begins = restart ? args.document_begins.as<int32_t>() : nullptr;
  ForEach(exec, args.y.elements(),
          PositionsBody{args.y.as<int32_t>(), args.part, args.first_row, begins});
}

}  // namespace trainyard::cuda
