// Views of memory that another object owns: pointer, dtype and shape; rows are contiguous (C
// order). Passed by value.

#pragma once

#include <array>
#include <initializer_list>
#include <ostream>
#include <span>

#include "common/check.h"
#include "kernels/device/dtype.h"

namespace trainyard {

// Up to five dims; a scalar has no dims.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    CHECK(dims.size() <= kMaxRank) << dims.size() << " dims";
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  explicit Shape(std::span<const int64_t> dims) {
    CHECK(dims.size() <= kMaxRank) << dims.size() << " dims";
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const {
    CHECK(i >= 0 && i < rank_) << "dim " << i << " of " << rank_;
    return dims_[i];
  }
  int64_t back() const { return (*this)[rank_ - 1]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  // The same shape with another size of dim i.
  Shape With(int i, int64_t size) const {
    CHECK(i >= 0 && i < rank_) << "dim " << i << " of " << rank_;
    Shape result = *this;
    result.dims_[i] = size;
    return result;
  }
  // The elements of all dims but the last.
  int64_t rows() const { return rank_ == 0 ? 1 : elements() / back(); }
  bool operator==(const Shape& other) const = default;

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> dims_ = {};
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

template <typename Void>
struct BasicTensor {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return size_t(elements()) * SizeOf(dtype); }

  // Pointer to the elements. T must be the dtype.
  template <typename T>
  auto as() const {
    CHECK(DTypeOf<T>::value == dtype)
        << "asked for " << Name(DTypeOf<T>::value) << ", holds " << dtype;
    if constexpr (std::is_const_v<Void>) {
      return static_cast<const T*>(data);
    } else {
      return static_cast<T*>(data);
    }
  }
};

struct Tensor : BasicTensor<void> {};
struct ConstTensor : BasicTensor<const void> {
  ConstTensor() = default;
  ConstTensor(const void* data, DType dtype, Shape shape) : BasicTensor{data, dtype, shape} {}
  ConstTensor(const Tensor& t) : BasicTensor{t.data, t.dtype, t.shape} {}
};

// Whether a kernel overwrites an output or adds to it. The first micro-batch writes the gradients
// of parameters, and later ones add to them; binding decides which.
enum class Write : uint8_t { kOverwrite, kAdd };

}  // namespace trainyard
