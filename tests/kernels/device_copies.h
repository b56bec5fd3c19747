// Lets tests keep tensors in vectors while kernels work in a device's own memory. Start at call.h,
// which uses this class.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "common/check.h"
#include "kernels/device/backend.h"
#include "kernels/device/dtype.h"

namespace trainyard::testing {

class DeviceCopies {
 public:
  // Copies the memory that the tensors and pointers of `args` refer to from the host to the device,
  // and makes `args` refer to the copies. Tensors that overlap on the host overlap on the device.
  // Addresses keep their remainder modulo 256. Around each copy lie guard bytes, which are NaN or
  // huge numbers: a kernel that uses them has wrong results. `args` must hold tensors and pointers
  // directly, not in structs of its own.
  template <typename Args>
  DeviceCopies(const Backend& backend, const Exec& exec, Args& args)
      : backend_(backend), exec_(exec), args_(reinterpret_cast<std::byte*>(&args)) {
    VisitFields<Args>();
    CHECK(RoundUp(visited_bytes_, alignof(Args)) == sizeof(Args)) << visited_bytes_;
    Upload();
  }

  // Copies the kernel's results back to the host. The kernel must be done. The test fails if the
  // kernel has changed guard bytes or what `args` declare as const.
  void CopyBack();

 private:
  struct Field {
    std::span<std::byte> host;
    size_t place;  // Of the pointer in the argument struct, in bytes.
    DType dtype;
    int number;  // Of the field in the argument struct, from 1.
    bool writable;
    size_t copy = 0;  // Index in copies_.
  };
  // Overlapping fields share a copy. In the image, the copy begins at `offset`; nothing may change
  // from `begin` to there, nor from the copy's end to `end`.
  struct Copy {
    std::span<std::byte> host;
    int field;       // The number of the first field.
    uint64_t guard;  // Eight guard bytes.
    size_t begin = 0, offset = 0, end = 0;
  };

  // Converts to a field of any type. Initializers are converted in the order of the fields, so each
  // conversion knows the place of its field. C++20 has no other way to visit a struct's fields.
  struct AnyField {
    DeviceCopies* copies = nullptr;
    template <typename T>
    operator T() const {
      return copies->Visit<T>();
    }
  };
  template <typename Args, typename... Fields>
  void VisitFields() {
    if constexpr (requires { Args{Fields{}..., AnyField{}}; }) {
      VisitFields<Args, Fields..., AnyField>();
    } else {
      static_cast<void>(Args{Fields{this}...});
    }
  }
  template <typename T>
  T Visit() {
    const size_t place = RoundUp(visited_bytes_, alignof(T));
    visited_bytes_ = place + sizeof(T);
    ++visited_fields_;
    T field;
    std::memcpy(&field, args_ + place, sizeof(T));
    if constexpr (std::is_pointer_v<T>) {
      Add(place, field, sizeof(*field), DType::kF64);
    } else if constexpr (requires { field.data, field.bytes(); }) {
      static_assert(offsetof(T, data) == 0);
      Add(place, field.data, field.bytes(), field.dtype);
    }
    return field;
  }
  template <typename T>
  void Add(size_t place, T* data, size_t bytes, DType dtype) {
    if (data == nullptr) return;
    auto* const begin = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data));
    fields_.push_back({.host = {begin, bytes},
                       .place = place,
                       .dtype = dtype,
                       .number = visited_fields_,
                       .writable = !std::is_const_v<T>});
  }
  static size_t RoundUp(size_t bytes, size_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
  }

  void PlaceCopies();
  void Upload();
  void CheckGuards(const Copy& copy, std::span<const std::byte> got) const;
  size_t OffsetOf(const Field& field) const;  // In the image.

  const Backend& backend_;
  const Exec& exec_;
  std::byte* const args_;
  size_t visited_bytes_ = 0;
  int visited_fields_ = 0;
  std::vector<Field> fields_;  // By address.
  std::vector<Copy> copies_;   // By address.
  size_t image_bytes_ = 0;
  std::vector<std::byte> image_;  // All copies with their guards, as the device got them.
  Buffer memory_;                 // Of the device, for the image.
};

}  // namespace trainyard::testing
