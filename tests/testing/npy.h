// Writes arrays as NumPy's .npy files hold them (train/data/npy.h describes the format).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::testing {

// The bytes of a file of version 1.0 whose elements have the type `descr`, such as "<f4".
template <typename T>
std::string Npy(const char* descr, const std::vector<int64_t>& shape,
                const std::vector<T>& elements) {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(shape, ", "), ",), }");
  header.resize(118, ' ');
  std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header;
  bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T));
  return bytes;
}

}  // namespace trainyard::testing
