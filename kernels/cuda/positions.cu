#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/positions.h"

namespace trainyard::cuda {
namespace {

struct PositionsBody {
  int32_t* y;
  SequencePart part;
  int64_t first_row;

  __device__ void operator()(int64_t i) const {
    y[i] = int32_t(part.position((first_row + i) % part.rows));
  }
};

}  // namespace

void Positions(Exec& exec, const PositionsArgs& args) {
  ForEach(exec, args.y.elements(), PositionsBody{args.y.as<int32_t>(), args.part, args.first_row});
}

}  // namespace trainyard::cuda
