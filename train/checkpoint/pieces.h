// Divides a stored box into pieces, each with its own checksum (CRC-32). A rank of another layout
// needs only a part of the box. With pieces it can check what it reads without reading much more.
// Pieces are cut along every dim, because layouts divide a tensor along any dim: a half, a quarter
// or an eighth of a box along one dim is a whole number of pieces, unless the size of the dim does
// not allow it or the box is tiny.
//
// The checksums follow the box in its file, in C order of the pieces, four bytes each,
// little-endian. A box that is too small to be divided has no pieces: its readers read all of it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/checkpoint/box.h"

namespace trainyard {

inline constexpr int64_t kMaxPieces = 1 << 14;  // Per box.

// Boxes are read, written and hashed in chunks of this size, so that a chunk is still in the
// processor's cache when it is hashed. A multiple of every dtype's size.
inline constexpr size_t kChunkBytes = 1 << 20;

// Returns the shape of a box's pieces; the last piece along a dim may be smaller. A box has at most
// kMaxPieces pieces, whose checksums take at most about a thirtieth of the box's bytes. Returns a
// shape of rank 0 if the box is too small to be divided.
Shape PieceShape(const Shape& extent, size_t element_bytes);

// The number of pieces along each dim of a box.
Shape PieceCounts(const Shape& extent, const Shape& piece);
// The bytes of a box's checksums; 0 if the box is not divided (`piece` has rank 0).
uint64_t PieceTableBytes(const Shape& extent, const Shape& piece);

// Computes the checksums of a box's pieces. The box's bytes must be given in the order of its
// memory.
class PieceChecksums {
 public:
  // `piece` must not have rank 0.
  PieceChecksums(const Shape& extent, const Shape& piece, size_t element_bytes);

  // Adds the next bytes of the box. They must be whole elements.
  void Update(const void* data, size_t bytes);
  const std::vector<uint32_t>& sums() const { return sums_; }

 private:
  int64_t FirstPieceOfRow(int64_t row) const;

  const Shape extent_, piece_, counts_;
  const size_t element_bytes_;
  int64_t at_ = 0;         // In elements.
  int64_t row_first_ = 0;  // The first piece of the current row.
  std::vector<uint32_t> sums_;
};

}  // namespace trainyard
