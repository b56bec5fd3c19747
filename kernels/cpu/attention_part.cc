// See attention_core.cc.

#include "kernels/attention_part.h"

#include "kernels/cpu/attention_core.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void AttentionPartForward(Exec& exec, const AttentionPartForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* kv = args.kv.as<T>();
    const int64_t kv_row = args.kv.shape.back();
    Run(exec, AttentionForwardCore<T, A>{.sequences = args.q.shape.rows() / args.dims.sequence,
                                         .dims = args.dims,
                                         .part = args.part,
                                         .q = {args.q.as<T>(), args.q.shape.back()},
                                         .k = {kv, kv_row},
                                         .v = {kv + kv_row / 2, kv_row},
                                         .out = {args.out.as<A>(), args.out.shape.back()},
                                         .lse = args.lse.as<A>(),
                                         .write = args.write});
  });
}

void AttentionPartBackward(Exec& exec, const AttentionPartBackwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* kv = args.kv.as<T>();
    A* dkv = args.dkv.as<A>();
    const int64_t kv_row = args.kv.shape.back();
    Run(exec, AttentionBackwardCore<T, A>{.sequences = args.q.shape.rows() / args.dims.sequence,
                                          .dims = args.dims,
                                          .part = args.part,
                                          .q = {args.q.as<T>(), args.q.shape.back()},
                                          .k = {kv, kv_row},
                                          .v = {kv + kv_row / 2, kv_row},
                                          .out = {args.out.as<T>(), args.out.shape.back()},
                                          .dout = {args.dout.as<T>(), args.dout.shape.back()},
                                          .lse = args.lse.as<A>(),
                                          .dq = {args.dq.as<A>(), args.dq.shape.back()},
                                          .dk = {dkv, kv_row},
                                          .dv = {dkv + kv_row / 2, kv_row},
                                          .write_dq = args.write_dq,
                                          .write_dkv = args.write_dkv});
  });
}

}  // namespace trainyard::cpu
