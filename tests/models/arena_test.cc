// Proves that pieces are placed as a search of all pairs would place them, and that an overlap is
// found wherever such a search finds one.
#include "models/program/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace trainyard::testing {
namespace {

// What PlaceBestFit says, word by word.
ArenaLayout BestFitOfAllPairs(const std::vector<Piece>& pieces) {
  std::vector<size_t> order(pieces.size()), placed;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  ArenaLayout layout{.offsets = std::vector<size_t>(pieces.size())};
  for (const size_t i : order) {
    size_t best = std::numeric_limits<size_t>::max(), best_gap = best, free_from = 0;
    for (const size_t other : placed) {  // By offset.
      if (!pieces[other].overlaps(pieces[i])) continue;
      const size_t begin = layout.offsets[other];
      if (begin > free_from && begin - free_from >= pieces[i].bytes &&
          begin - free_from < best_gap) {
        best = free_from, best_gap = begin - free_from;
      }
      free_from = std::max(free_from, begin + pieces[other].bytes);
    }
    layout.offsets[i] = best == std::numeric_limits<size_t>::max() ? free_from : best;
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + pieces[i].bytes);
    placed.push_back(i);
    std::sort(placed.begin(), placed.end(),
              [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; });
  }
  return layout;
}

bool AnyPairOverlaps(const std::vector<Piece>& pieces, const std::vector<size_t>& offsets) {
  for (size_t a = 0; a < pieces.size(); ++a) {
    for (size_t b = a + 1; b < pieces.size(); ++b) {
      const bool apart =
          offsets[a] + pieces[a].bytes <= offsets[b] || offsets[b] + pieces[b].bytes <= offsets[a];
      if (!apart && pieces[a].overlaps(pieces[b])) return true;
    }
  }
  return false;
}

class ArenaTest : public ::testing::Test {
 protected:
  int64_t Below(int64_t limit) { return int64_t(random_() % uint64_t(limit)); }

  // Up to 40, some of which live to the end.
  std::vector<Piece> RandomPieces() {
    std::vector<Piece> pieces(size_t(1 + Below(40)));
    const int64_t longest = 1 + Below(20), largest = 1 + Below(8);
    for (Piece& piece : pieces) {
      piece.first = Below(30) - 1;
      piece.last =
          Below(8) == 0 ? std::numeric_limits<int64_t>::max() : piece.first + Below(longest);
      piece.bytes = size_t(1 + Below(largest));
    }
    return pieces;
  }

  std::mt19937_64 random_{1};
};

TEST_F(ArenaTest, PiecesLieWhereTheSearchOfAllPairsPutsThem) {
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Piece> pieces = RandomPieces();
    const ArenaLayout want = BestFitOfAllPairs(pieces), found = PlaceBestFit(pieces);
    ASSERT_EQ(found.offsets, want.offsets) << round;
    ASSERT_EQ(found.bytes, want.bytes) << round;
    ASSERT_FALSE(FindOverlap(pieces, found.offsets)) << round;
  }
  EXPECT_EQ(PlaceBestFit({}).bytes, 0u);
}

// Bug it must catch: a pair that is no neighbour when the later one begins.
TEST_F(ArenaTest, AnOverlapIsFoundWhereASearchOfAllPairsFindsOne) {
  int overlaps = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<Piece> pieces = RandomPieces();
    std::vector<size_t> offsets = PlaceBestFit(pieces).offsets;
    for (int64_t changes = Below(3); changes > 0; --changes) {  // Of a place, or of a size to none.
      const size_t i = size_t(Below(int64_t(pieces.size())));
      if (Below(2) == 0) offsets[i] = size_t(Below(40));
      if (Below(4) == 0) pieces[i].bytes = 0;
    }
    const auto found = FindOverlap(pieces, offsets);
    ASSERT_EQ(found.has_value(), AnyPairOverlaps(pieces, offsets)) << round;
    if (!found) continue;
    ++overlaps;
    const auto [a, b] = *found;
    EXPECT_TRUE(AnyPairOverlaps({pieces[a], pieces[b]}, {offsets[a], offsets[b]})) << round;
  }
  EXPECT_GT(overlaps, 500);
  EXPECT_LT(overlaps, 4500);
}

}  // namespace
}  // namespace trainyard::testing
