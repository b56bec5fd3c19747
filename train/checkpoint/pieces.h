// A stored box is divided into pieces, each with a checksum of its own (CRC-32), so that a rank of
// another layout, which needs a part of the box, checks what it reads and reads little else. Pieces
// are cut along every dim, since layouts divide a tensor along any: a half, a quarter or an eighth
// of a box along one dim is a whole number of pieces wherever the dim's size allows and the box is
// not tiny.
//
// The checksums follow the box in its file, in C order of the pieces, four bytes each,
// little-endian. A box that is too small to be divided has none: its readers read all of it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/checkpoint/box.h"

namespace trainyard {

inline constexpr int64_t kMaxPieces = 1 << 14;  // Of a box.

// Boxes are read, written and hashed in chunks of this size: a chunk is hashed while it is in the
// processor's cache. A multiple of every dtype's size.
inline constexpr size_t kChunkBytes = 1 << 20;

// Returns the shape of a box's pieces; the last piece along a dim may be smaller. A box has at most
// kMaxPieces pieces, whose checksums take at most about a thirtieth of the box's bytes. Returns a
// shape of rank 0 if the box is too small to be divided.
Shape PieceShape(const Shape& extent, size_t element_bytes);

// How many pieces a box of that extent has along each dim.
Shape PieceCounts(const Shape& extent, const Shape& piece);
// The bytes of a box's checksums; 0 where it is not divided (`piece` has rank 0).
uint64_t PieceTableBytes(const Shape& extent, const Shape& piece);

// The checksums of a box whose bytes come in the order of its memory.
class PieceChecksums {
 public:
  // `piece` is not of rank 0.
  PieceChecksums(const Shape& extent, const Shape& piece, size_t element_bytes);

  // Whole elements, the next ones.
  void Update(const void* data, size_t bytes);
  const std::vector<uint32_t>& sums() const { return sums_; }

 private:
  int64_t FirstPieceOfRow(int64_t row) const;

  const Shape extent_, piece_, counts_;
  const size_t element_bytes_;
  int64_t at_ = 0;         // In elements.
  int64_t row_first_ = 0;  // The piece in which the row begins.
  std::vector<uint32_t> sums_;
};

}  // namespace trainyard
