#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/cast.h"

namespace trainyard::cuda {
namespace {

template <typename From, typename To>
struct CastBody {
  const From* x;
  To* y;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    const auto xs = LoadPack<From, kCount>(x + i);
    Pack<To, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = To(Accumulate<From>(xs.v[n]));
    StorePack(y + i, ys);
  }
};

}  // namespace

// Bound by memory. A pack has 16 bytes of the wider dtype.
void Cast(Exec& exec, const CastArgs& args) {
  const int64_t count = args.x.elements();
  if (args.x.dtype == args.y.dtype) {
    return ThrowIfError(cudaMemcpyAsync(args.y.data, args.x.data, args.x.bytes(), cudaMemcpyDefault,
                                        StreamOf(exec)),
                        "cast");
  }
  DispatchFloat(args.x.dtype, [&](auto from) {
    DispatchFloat(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      using Wider = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
      if constexpr (!std::is_same_v<From, To>) {
        const CastBody<From, To> body = {args.x.as<From>(), args.y.as<To>()};
        ForEachPack<Wider>(exec, count, CanPack<Wider>(count, body.x, body.y), body);
      }
    });
  });
}

}  // namespace trainyard::cuda
