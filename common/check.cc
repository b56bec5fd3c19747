#include "common/check.h"

#include <cstdlib>
#include <iostream>

namespace trainyard::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  text_ << file << ':' << line << ": CHECK failed: " << condition << ' ';
}

CheckFailure::~CheckFailure() {
  std::cerr << text_.str() << std::endl;
  std::abort();
}

}  // namespace trainyard::internal
