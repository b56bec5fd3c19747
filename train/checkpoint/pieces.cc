#include "train/checkpoint/pieces.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/crc32.h"

namespace trainyard {
namespace {

constexpr int64_t kMinPieceBytes = 128;

// Returns a piece's size along a dim after a cut: into 2, 3, 5 or 7 equal parts if one of these
// divides it, and otherwise into two.
int64_t Cut(int64_t size) {
  for (const int64_t parts : {2, 3, 5, 7}) {
    if (size % parts == 0) return size / parts;
  }
  return (size + 1) / 2;
}

}  // namespace

Shape PieceCounts(const Shape& extent, const Shape& piece) {
  Shape counts = extent;
  for (int i = 0; i < extent.rank(); ++i) {
    counts = counts.With(i, (extent[i] + piece[i] - 1) / piece[i]);
  }
  return counts;
}

Shape PieceShape(const Shape& extent, size_t element_bytes) {
  Shape piece = extent;
  std::array<bool, Shape::kMaxRank> done = {};
  for (;;) {
    // Choose the dim that has been cut least.
    const Shape counts = PieceCounts(extent, piece);
    int next = -1;
    for (int i = 0; i < extent.rank(); ++i) {
      if (!done[size_t(i)] && (next < 0 || counts[i] < counts[next])) next = i;
    }
    if (next < 0) break;
    const Shape cut = piece.With(next, Cut(piece[next]));
    if (piece[next] > 1 && PieceCounts(extent, cut).elements() <= kMaxPieces &&
        cut.elements() * int64_t(element_bytes) >= kMinPieceBytes) {
      piece = cut;
    } else {
      done[size_t(next)] = true;
    }
  }
  return piece == extent ? Shape() : piece;
}

uint64_t PieceTableBytes(const Shape& extent, const Shape& piece) {
  if (piece.rank() == 0) return 0;
  return uint64_t(PieceCounts(extent, piece).elements()) * sizeof(uint32_t);
}

PieceChecksums::PieceChecksums(const Shape& extent, const Shape& piece, size_t element_bytes)
    : extent_(extent),
      piece_(piece),
      counts_(PieceCounts(extent, piece)),
      element_bytes_(element_bytes),
      sums_(size_t(counts_.elements())) {}

int64_t PieceChecksums::FirstPieceOfRow(int64_t row) const {
  int64_t first = 0, stride = counts_.back();
  for (int i = extent_.rank() - 2; i >= 0; --i) {
    first += row % extent_[i] / piece_[i] * stride;
    row /= extent_[i];
    stride *= counts_[i];
  }
  return first;
}

void PieceChecksums::Update(const void* data, size_t bytes) {
  CHECK(bytes % element_bytes_ == 0) << bytes << " bytes of elements of " << element_bytes_;
  const char* from = static_cast<const char*>(data);
  const int64_t width = extent_.back(), piece = piece_.back();
  for (int64_t left = int64_t(bytes / element_bytes_); left > 0;) {
    const int64_t column = at_ % width;
    if (column == 0) row_first_ = FirstPieceOfRow(at_ / width);
    const int64_t count = std::min({left, width - column, piece - column % piece});
    uint32_t& sum = sums_[size_t(row_first_ + column / piece)];
    sum = Crc32(sum, from, size_t(count) * element_bytes_);
    from += size_t(count) * element_bytes_;
    at_ += count;
    left -= count;
  }
}

}  // namespace trainyard
