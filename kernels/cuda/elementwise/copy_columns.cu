#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.h"
#include "kernels/elementwise/copy_columns.h"

namespace trainyard::cuda {
namespace {

template <typename From, typename To>
struct CopyColumnsBody {
  const From* x;
  To* y;
  int64_t x_row, y_row;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t c) const {
    const auto xs = LoadPack<From, kCount>(x + t * x_row + c);
    Pack<To, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = To(Accumulate<From>(xs.v[n]));
    StorePack(y + t * y_row + c, ys);
  }
};

}  // namespace

// Bound by memory. A pack has 16 bytes of the wider dtype.
void CopyColumns(Exec& exec, const CopyColumnsArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto from) {
    DispatchFloat(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      using Wider = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
      const CopyColumnsBody<From, To> body = {args.x.as<From>() + args.x_begin,
                                              args.y.as<To>() + args.y_begin, args.x.shape.back(),
                                              args.y.shape.back()};
      const bool packed = CanPack<Wider>(body.x_row, body.x) && CanPack<Wider>(body.y_row, body.y);
      ForEachPackOfRows<Wider>(exec, args.x.shape.rows(), args.columns, packed, body);
    });
  });
}

}  // namespace trainyard::cuda
