// Tensors that tests own: values in a vector, usable wherever a kernel takes a view.

#pragma once

#include <limits>
#include <vector>

#include "common/rng.h"
#include "kernels/device/tensor.h"

namespace trainyard::testing {

template <typename T>
struct Array {
  Shape shape;
  std::vector<T> v;

  operator Tensor() { return Tensor{{v.data(), DTypeOf<T>::value, shape}}; }
  operator ConstTensor() const { return {v.data(), DTypeOf<T>::value, shape}; }
};

template <typename T>
Array<T> Filled(Shape shape, T value) {
  return {shape, std::vector<T>(size_t(shape.elements()), value)};
}

template <typename T>
Array<T> Zeros(Shape shape) {
  return Filled<T>(shape, T(0));
}

// NaN: what a kernel must overwrite without reading.
template <typename T>
Array<T> Poison(Shape shape) {
  return Filled<T>(shape, T(std::numeric_limits<float>::quiet_NaN()));
}

// Standard normal, a pure function of the seed.
template <typename T>
Array<T> Normal(Shape shape, uint64_t seed) {
  auto array = Zeros<T>(shape);
  for (size_t i = 0; i < array.v.size(); ++i) array.v[i] = T(trainyard::Normal(seed, 0, i));
  return array;
}

// Integers in [0, limit), a pure function of the seed.
inline Array<int32_t> Indices(Shape shape, int32_t limit, uint64_t seed) {
  auto array = Zeros<int32_t>(shape);
  for (size_t i = 0; i < array.v.size(); ++i) {
    array.v[i] = int32_t(RandomBits(seed, 1, i) % uint64_t(limit));
  }
  return array;
}

template <typename To, typename From>
Array<To> Converted(const Array<From>& from) {
  Array<To> to{from.shape, {}};
  for (const From& x : from.v) to.v.push_back(To(Accumulate<From>(x)));
  return to;
}

// The nearest values that T can hold: inputs on which two dtypes can be compared.
template <typename T>
Array<double> RoundedTo(const Array<double>& from) {
  return Converted<double>(Converted<T>(from));
}

template <typename T>
double Dot(const Array<T>& a, const Array<T>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.v.size(); ++i) sum += double(a.v[i]) * double(b.v[i]);
  return sum;
}

}  // namespace trainyard::testing
