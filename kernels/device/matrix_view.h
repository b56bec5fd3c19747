// Views of matrices whose rows need not be adjacent in memory: some columns of a wider tensor, such
// as the query heads of a packed projection. Passed by value. A view does not own its memory.

#pragma once

#include "kernels/device/tensor.h"

namespace trainyard {

template <typename Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // Elements from one row to the next; at least `columns`.

  // From the first element to the last, gaps between rows included.
  size_t bytes() const {
    return rows == 0 ? 0 : size_t((rows - 1) * stride + columns) * SizeOf(dtype);
  }
  // Pointer to the first element. T must be the dtype.
  template <typename T>
  auto as() const {
    return BasicTensor<Void>{data, dtype, {}}.template as<T>();
  }

 protected:
  // Makes this a view of columns [begin, begin + count) of the tensor's rows.
  void View(const BasicTensor<Void>& tensor, int64_t begin, int64_t count) {
    dtype = tensor.dtype;
    stride = tensor.shape.rank() == 0 ? 1 : tensor.shape.back();
    rows = tensor.shape.rows();
    columns = count;
    CHECK(begin >= 0 && count >= 0 && begin + count <= stride)
        << "columns " << begin << " to " << begin + count << " of " << tensor.shape;
    if (tensor.data == nullptr) return;
    using Bytes = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    data = static_cast<Bytes*>(tensor.data) + size_t(begin) * SizeOf(dtype);
  }
};

struct MatrixView : BasicMatrixView<void> {
  MatrixView() = default;
  MatrixView(const Tensor& t) : MatrixView(t, 0, t.shape.back()) {}
  MatrixView(const Tensor& t, int64_t begin, int64_t count) { View(t, begin, count); }
};
struct ConstMatrixView : BasicMatrixView<const void> {
  ConstMatrixView() = default;
  ConstMatrixView(const ConstTensor& t) : ConstMatrixView(t, 0, t.shape.back()) {}
  ConstMatrixView(const ConstTensor& t, int64_t begin, int64_t count) { View(t, begin, count); }
  ConstMatrixView(const MatrixView& view) {
    data = view.data, dtype = view.dtype;
    rows = view.rows, columns = view.columns, stride = view.stride;
  }
};

inline std::ostream& operator<<(std::ostream& out, const ConstMatrixView& view) {
  return out << view.dtype << " [" << view.rows << ", " << view.columns << "]";
}

// A mismatch is a programmer error that names the argument, as in expect.h.
inline void ExpectView(const char* name, const ConstMatrixView& view, DType dtype, int64_t rows,
                       int64_t columns) {
  CHECK(view.dtype == dtype && view.rows == rows && view.columns == columns)
      << name << ": wanted " << dtype << " [" << rows << ", " << columns << "], got " << view;
  CHECK(view.data != nullptr) << name << ": no data, of " << view;
  CHECK(view.stride >= columns) << name << ": rows of " << columns << " elements lie "
                                << view.stride << " apart";
}

}  // namespace trainyard
