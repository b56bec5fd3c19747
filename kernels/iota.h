// Counts up, again and again: y[i] = i % period. The positions of tokens in sequences of `period`.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct IotaArgs {
  Tensor y;        // any shape, i32, out
  int64_t period;  // > 0
};

inline void Check(const IotaArgs& args) {
  ExpectElements("iota y", args.y, DType::kI32, args.y.elements());
  CHECK(args.period > 0) << "iota period: " << args.period;
}

}  // namespace trainyard
