// Places pieces of memory in an arena. Pieces that are alive at different times may overlap.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace trainyard {

struct Piece {
  int64_t first = 0, last = 0;  // The times during which the piece is alive, both included.
  size_t bytes = 0;

  bool overlaps(const Piece& o) const { return first <= o.last && o.first <= last; }
};

struct ArenaLayout {
  std::vector<size_t> offsets;  // By piece.
  size_t bytes = 0;             // Size of the arena.
};

// Places the largest piece first. Each piece goes into the smallest gap between the pieces that are
// alive with it; of equal gaps, into the lowest. Takes about n log^2 n steps if pieces leave few
// gaps, as is usual.
ArenaLayout PlaceBestFit(const std::vector<Piece>& pieces);

// Returns two pieces that are alive at the same time and share bytes, or nullopt if there are none.
// Takes n log n steps and shares no code with PlaceBestFit, so that it can check the result.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces,
                                                     const std::vector<size_t>& offsets);

}  // namespace trainyard
