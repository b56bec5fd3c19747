// The building blocks of the Check functions in kernels/*.h. A mismatch is a programmer error that
// names the argument: "rms_norm gain: wanted f32 with 8 elements, got f32 [16]".

#pragma once

#include <algorithm>
#include <initializer_list>

#include "kernels/device/tensor.h"

namespace trainyard {

inline void ExpectData(const char* name, const ConstTensor& t) {
  CHECK(t.data != nullptr) << name << ": no data, of " << t.dtype << ' ' << t.shape;
}

// `wanted` may repeat dtypes.
inline void ExpectDType(const char* name, const ConstTensor& t,
                        std::initializer_list<DType> wanted) {
  if (std::find(wanted.begin(), wanted.end(), t.dtype) != wanted.end()) return;
  std::ostringstream names;
  for (const DType* d = wanted.begin(); d != wanted.end(); ++d) {
    if (std::find(wanted.begin(), d, *d) == d) names << (d == wanted.begin() ? "" : " or ") << *d;
  }
  CHECK(false) << name << ": wanted " << names.str() << ", got " << t.dtype << ' ' << t.shape;
}

inline void ExpectFloat(const char* name, const ConstTensor& t) {
  ExpectDType(name, t, {DType::kF64, DType::kF32, DType::kBF16});
  ExpectData(name, t);
}

// All dims but the last count as rows.
inline void ExpectMatrix(const char* name, const ConstTensor& t, DType dtype, int64_t rows,
                         int64_t columns) {
  CHECK(t.dtype == dtype && t.shape.rank() > 0 && t.elements() == rows * columns &&
        t.shape.back() == columns)
      << name << ": wanted " << dtype << " [" << rows << ", " << columns << "], got " << t.dtype
      << ' ' << t.shape;
  ExpectData(name, t);
}

inline void ExpectElements(const char* name, const ConstTensor& t, DType dtype, int64_t elements) {
  CHECK(t.dtype == dtype && t.elements() == elements)
      << name << ": wanted " << dtype << " with " << elements << " elements, got " << t.dtype << ' '
      << t.shape;
  ExpectData(name, t);
}

// Returns the columns of a tensor that must have at least one dim and no empty one.
inline int64_t ExpectColumns(const char* name, const ConstTensor& t) {
  CHECK(t.shape.rank() > 0 && t.elements() > 0) << name << ": wanted rows, got " << t.shape;
  return t.shape.back();
}

}  // namespace trainyard
