// Reads elements at any place of an array in NumPy's .npy format. The format is little-endian:
//
//   offset  size
//        0     6  0x93 "NUMPY"
//        6     2  version: 1.0, 2.0 or 3.0, one byte each
//        8     2  length h of the header; 4 bytes in versions 2.0 and 3.0
//              h  a Python literal, padded with spaces and a line break:
//                   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//                 then the elements
//
// Source: numpy.lib.format, "Format Specification".

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"

namespace trainyard {

// A type of elements that can be read.
struct NpyType {
  const char* descr;  // As the header writes it: "<f4".
  size_t bytes;
  bool real;
};

struct NpyHeader {
  NpyType type;
  std::vector<int64_t> shape;  // Each size is >= 0. The bytes of all elements fit int64_t.
};

// Parses the literal of a header. Returns INVALID_ARGUMENT, which says what is wrong, if the
// literal does not have exactly the three keys once each, if the order is Fortran's, if the shape
// is too large, or if the type is not in the table (big-endian types, f64, structures, pickled
// objects, complex numbers).
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view literal);

// An open file. Thread-safe.
class NpyArray {
 public:
  // Opens the file, and checks the whole header and that the file has exactly the bytes that the
  // header promises. Reads no element. Errors name the file: DATA_LOSS if the file is no complete
  // .npy file, INVALID_ARGUMENT as ParseNpyHeader, and those of Roots.
  static absl::StatusOr<NpyArray> Open(const std::string& path, const Roots& roots);

  const std::string& path() const { return file_.path(); }
  const NpyType& type() const { return header_.type; }
  const std::vector<int64_t>& shape() const { return header_.shape; }

  // Reads elements into `out`, from number `first` on in C order. The caller must guarantee that
  // the array has these elements. CHECKs that the type is real for floats, and an integer for
  // int64_t. An unsigned integer above 2^63 - 1 is read as 2^63 - 1. Returns DATA_LOSS if the file
  // became shorter.
  absl::Status Read(uint64_t first, std::span<float> out) const;
  absl::Status Read(uint64_t first, std::span<int64_t> out) const;

 private:
  NpyArray(InputFile file, NpyHeader header, uint64_t data_at)
      : file_(std::move(file)), header_(std::move(header)), data_at_(data_at) {}

  template <typename Stored, typename Out, typename Convert>
  absl::Status ReadAs(uint64_t first, std::span<Out> out, const Convert& convert) const;

  InputFile file_;
  NpyHeader header_;
  uint64_t data_at_;
};

}  // namespace trainyard
