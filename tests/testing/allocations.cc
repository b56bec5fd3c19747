// A file of its own, so that the compiler cannot pair these with the calls that it sees.
#include "tests/testing/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t>& Count() {
  static constinit std::atomic<int64_t> count{0};
  return count;
}

}  // namespace

// Both forms: otherwise a sanitizer's own nothrow form would meet the delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++Count();
  return std::malloc(bytes);
}
void* operator new(size_t bytes) {
  void* data = operator new(bytes, std::nothrow);
  if (data == nullptr) std::abort();
  return data;
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

int64_t trainyard::testing::Allocations() { return Count(); }
