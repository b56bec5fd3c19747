// Aligns `new` to 256 bytes, as a GPU's memory is: copies on the device keep the alignment
// (device_copies.h), so kernels get vectors aligned like a training step's tensors.

#include <cstdlib>
#include <new>

// Both forms: otherwise a sanitizer's own nothrow form would meet the delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  constexpr size_t kAlignment = 256;
  return std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
}
void* operator new(size_t bytes) {
  void* const data = operator new(bytes, std::nothrow);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
