// Some columns of a matrix, as arguments of kernels name them.

#pragma once

#include <cstddef>

#include "kernels/device/expect.h"

namespace trainyard {

// Columns [begin, begin + count) of a tensor. The default is all columns.
struct ColumnRange {
  int64_t begin = 0;
  int64_t count = 0;  // 0: all.

  bool all() const { return begin == 0 && count == 0; }
};

// These columns as they lie in memory. Leading dims of the tensor count as rows.
struct ColumnsView {
  const std::byte* data;
  DType dtype;
  int64_t rows, columns;
  int64_t stride;  // Elements from one row to the next.

  ColumnsView(const ConstTensor& t, const ColumnRange& range)
      : data(static_cast<const std::byte*>(t.data) + range.begin * int64_t(SizeOf(t.dtype))),
        dtype(t.dtype),
        rows(t.shape.rows()),
        columns(range.count == 0 ? t.shape.back() : range.count),
        stride(t.shape.back()) {}

  template <typename T>
  const T* as() const {
    return ConstTensor(data, dtype, {}).as<T>();
  }
};

// Checks that these columns of `t` are a matrix [rows, columns].
inline void ExpectMatrix(const char* name, const ConstTensor& t, const ColumnRange& range,
                         DType dtype, const Shape& wanted) {
  if (range.all()) return ExpectMatrix(name, t, dtype, wanted[0], wanted[1]);
  const int64_t end = range.begin + range.count;
  CHECK(range.begin >= 0 && range.count > 0 && end <= t.shape.back())
      << name << ": wanted columns of " << t.shape << ", got " << range.begin << " to " << end;
  CHECK(t.dtype == dtype && t.shape.rows() == wanted[0] && range.count == wanted[1])
      << name << ": wanted " << dtype << ' ' << wanted << ", got " << range.count << " columns of "
      << t.dtype << ' ' << t.shape;
  ExpectData(name, t);
}

}  // namespace trainyard
