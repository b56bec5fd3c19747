// How much a test reads from files.

#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "common/check.h"

namespace trainyard::testing_checkpoint {

// Bytes that this process has asked files for so far.
inline int64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string field;
  int64_t bytes = -1;
  CHECK(io >> field >> bytes && field == "rchar:") << "/proc/self/io begins with " << field;
  return bytes;
}

// What `f` reads.
template <typename F>
int64_t BytesReadBy(F&& f) {
  const int64_t first = BytesRead(), before = BytesRead();  // To read the count is counted, too.
  f();
  return BytesRead() - before - (before - first);
}

}  // namespace trainyard::testing_checkpoint
