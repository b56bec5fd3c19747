// The residual add that norms fuse: the sum of a row is computed right before the row is
// normalised, so that the row is still in the cache.

#pragma once

#include "kernels/device/tensor.h"

namespace trainyard::cpu {

template <typename T>
const T* DataOrNull(const ConstTensor& tensor) {
  return tensor.data == nullptr ? nullptr : tensor.as<T>();
}

template <typename T>
class Residual {
 public:
  Residual(const ConstTensor& addend, const Tensor& sum)
      : addend_(DataOrNull<T>(addend)), sum_(addend_ == nullptr ? nullptr : sum.as<T>()) {}

  // Returns the row that is normalised: row t of x, or of the sum, which is written first.
  const T* Row(const T* x_data, int64_t t, int64_t d) const {
    using A = Accumulate<T>;
    const T* x = x_data + t * d;
    if (addend_ == nullptr) return x;
    const T* addend = addend_ + t * d;
    T* sum = sum_ + t * d;
#pragma omp simd
    for (int64_t i = 0; i < d; ++i) sum[i] = T(A(x[i]) + A(addend[i]));
    return sum;
  }

 private:
  const T* addend_;
  T* sum_;
};

}  // namespace trainyard::cpu
