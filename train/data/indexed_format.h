// The format of Megatron's indexed dataset. PREFIX.bin has the tokens, and PREFIX.idx says where
// the sequences and documents begin. All numbers are little-endian.
//
//   offset  size  PREFIX.idx
//        0     9  "MMIDIDX" and two zero bytes
//        9     8  version, 1
//       17     1  dtype code, below
//       18     8  number of sequences n
//       26     8  length d of the document index: documents + 1
//       34    4n  tokens of each sequence, int32
//  34 + 4n    8n  byte offset of each sequence in PREFIX.bin, int64
// 34 + 12n    8d  document boundaries as sequence numbers, int64: the first is 0, the last n
//
// PREFIX.tokenizer/, which Megatron does not have, holds the files of the tokenizer that made the
// tokens (train/tokenizer/tokenizer_files.h). It may be missing.

#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

inline constexpr char kIndexSuffix[] = ".idx";
inline constexpr char kTokensSuffix[] = ".bin";
inline constexpr char kTokenizerSuffix[] = ".tokenizer";

inline constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr uint64_t kIndexHeaderBytes = 34;

enum class IndexDType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,  // The floating-point types hold no token ids.
  kFloat32 = 7,
  kUint16 = 8,
};

// Returns the bytes of one token, or 0 if the dtype is no integer type.
constexpr size_t TokenBytes(IndexDType dtype) {
  switch (dtype) {
    case IndexDType::kUint8:
    case IndexDType::kInt8:
      return 1;
    case IndexDType::kInt16:
    case IndexDType::kUint16:
      return 2;
    case IndexDType::kInt32:
      return 4;
    case IndexDType::kInt64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace trainyard
