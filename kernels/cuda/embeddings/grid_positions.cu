#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/embeddings/grid_positions.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct GridBody {
  T* y;
  int64_t quarter, columns;
  SequencePart part;
  int64_t first_row;

  __device__ void operator()(int64_t i) const {
    const int64_t t = i / (2 * quarter), of_row = i % (2 * quarter), pair = of_row % quarter;
    const int64_t p = part.position((first_row + t) % part.rows);
    const int64_t place = of_row < quarter ? p % columns : p / columns;
    const double angle = double(place) * std::pow(10000.0, -double(pair) / double(quarter));
    T* const to = y + t * 4 * quarter + (of_row - pair) * 2 + pair;
    to[0] = T(Accumulate<T>(std::sin(angle)));
    to[quarter] = T(Accumulate<T>(std::cos(angle)));
  }
};

}  // namespace

// The speed does not matter: positions are constants, which are computed once, before the first
// step.
void GridPositions(Exec& exec, const GridPositionsArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t quarter = args.y.shape.back() / 4;
    ForEach(exec, args.y.shape.rows() * 2 * quarter,
            GridBody<T>{args.y.as<T>(), quarter, args.columns, args.part, args.first_row});
  });
}

}  // namespace trainyard::cuda
