// CHECK is for programmer errors. It is always on. If the condition is false, it prints file, line,
// condition and the streamed values, and aborts.
//
//   CHECK(x.shape == y.shape) << x.shape << " and " << y.shape;
//
// Expected failures (bad input, missing file, dead peer) are absl::Status instead.

#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace trainyard::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    text_ << file << ':' << line << ": CHECK failed: " << condition << ' ';
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << text_.str() << std::endl;
    std::abort();
  }
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
