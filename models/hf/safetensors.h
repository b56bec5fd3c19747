// The safetensors format: named tensors in one file, little-endian.
//
//   offset  size
//        0     8  length h of the header
//        8     h  a JSON object, which may end in spaces:
//                   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...,
//                    "__metadata__": {"format": "pt"}}
//      8+h        the tensors in C order; data_offsets count from here
//
// The tensors fill the rest of the file without gaps. Anybody may have made a file, so a reader
// checks all of this before it uses a number.
//
// Source: github.com/huggingface/safetensors, README, section "Format".

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"

namespace trainyard {

enum class HfDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};
const char* Name(HfDType dtype);  // As in the header: "BF16".
size_t SizeOf(HfDType dtype);

struct SafetensorsTensor {
  HfDType dtype = HfDType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // In bytes from the end of the header.
  uint64_t bytes = 0;
};
using SafetensorsTensors = std::map<std::string, SafetensorsTensor>;

// Parses a header whose file has `data_bytes` after it. Checks that the tensors fill these bytes.
// DATA_LOSS: names the tensor and what is wrong with it.
absl::StatusOr<SafetensorsTensors> ParseSafetensorsHeader(absl::string_view text,
                                                          uint64_t data_bytes);

// A tensor to be written.
struct SafetensorsEntry {
  std::string name;
  HfDType dtype = HfDType::kF32;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};
// Returns everything that comes before the tensors, which must follow in this order. The tensors
// begin at a multiple of 8.
std::string SafetensorsHeader(const std::vector<SafetensorsEntry>& entries);

// An open file. Thread-safe.
class SafetensorsFile {
 public:
  // Checks the whole header, and that the file has exactly the bytes that it promises. Reads no
  // tensor. DATA_LOSS, which names the file: it is no complete safetensors file. Other errors are
  // those of Roots.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path,
                                              const Roots& roots = Roots());

  const std::string& path() const { return file_.path(); }
  const SafetensorsTensors& tensors() const { return tensors_; }

  // Reads `bytes` of a tensor from byte `offset` of it on. CHECKs that the tensor has them.
  // DATA_LOSS: the file became shorter.
  absl::Status Read(const SafetensorsTensor& tensor, uint64_t offset, void* out,
                    size_t bytes) const;

 private:
  SafetensorsFile(InputFile file, SafetensorsTensors tensors, uint64_t data_at)
      : file_(std::move(file)), tensors_(std::move(tensors)), data_at_(data_at) {}

  InputFile file_;
  SafetensorsTensors tensors_;
  uint64_t data_at_;
};

}  // namespace trainyard
