// Where pieces of memory lie in an arena, when each is alive for some time only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace trainyard {

struct Piece {
  int64_t first = 0, last = 0;  // When it is alive, both ends included.
  size_t bytes = 0;

  bool overlaps(const Piece& o) const { return first <= o.last && o.first <= last; }
};

struct ArenaLayout {
  std::vector<size_t> offsets;  // By piece.
  size_t bytes = 0;             // Of the arena.
};

// Largest first, each piece in the smallest gap that fits among those alive with it, the lowest of
// equal ones. About n log^2 n steps where pieces leave few gaps, as they do.
ArenaLayout PlaceBestFit(const std::vector<Piece>& pieces);

// Two pieces that are alive together and lie on the same bytes, if there are any. n log n steps,
// and apart from how offsets are found.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces,
                                                     const std::vector<size_t>& offsets);

}  // namespace trainyard
