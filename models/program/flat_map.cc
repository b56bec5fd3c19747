#include "models/program/flat_map.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard {

void FlatMap::Place(const FlatRange& flat, int64_t at) {
  elements_ = std::max(elements_, at + flat.elements);
  if (pieces_.empty()) return pieces_.push_back({flat, at});
  Piece& last = pieces_.back();
  CHECK(flat.offset >= last.flat.end())
      << "range at " << flat.offset << " after one that ends at " << last.flat.end();
  if (last.flat.end() == flat.offset && last.at + last.flat.elements == at) {
    last.flat.elements += flat.elements;
  } else {
    pieces_.push_back({flat, at});
  }
}

std::optional<int64_t> FlatMap::Find(const FlatRange& flat) const {
  const auto next = std::upper_bound(
      pieces_.begin(), pieces_.end(), flat.offset,
      [](int64_t offset, const Piece& piece) { return offset < piece.flat.offset; });
  if (next == pieces_.begin()) return std::nullopt;
  const Piece& piece = *std::prev(next);
  if (flat.end() > piece.flat.end()) return std::nullopt;
  return piece.at + flat.offset - piece.flat.offset;
}

std::vector<FlatRange> FlatMap::ranges() const {
  std::vector<FlatRange> ranges;
  for (const Piece& piece : pieces_) ranges.push_back(piece.flat);
  return ranges;
}

}  // namespace trainyard
