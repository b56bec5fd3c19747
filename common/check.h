// CHECK is for programmer errors. It is always on. If the condition is false, it prints file, line,
// condition and the streamed values, and aborts.
//
//   CHECK(x.shape == y.shape) << x.shape << " and " << y.shape;
//
// Expected failures (bad input, missing file, dead peer) are absl::Status instead.

#pragma once

#include <ostream>
#include <sstream>

namespace trainyard::internal {

// Its code is in check.cc: kernels that are compiled for several types and instruction sets would
// have copies of it for each of their checks.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

// Gives the two arms of the conditional below one type.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace trainyard::internal

#define CHECK(condition)                           \
  (condition) ? (void)0                            \
              : ::trainyard::internal::Voidify() & \
                    ::trainyard::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
