// A causal mask without more makes turns of equal work for all ranks, one part each:
//   t = 0          own keys: causal, all of this rank's rows in order
//   from a lower   rank: all queries come after its first chunk and before its second
//   from a higher  rank: only the second chunk of queries comes after its two chunks, which it sees
// A full mask has one part, of all rows. Where positions count (windows, documents) a part is one
// chunk of queries over one chunk of keys, whose positions follow one another.
#include "models/program/ops/context_parts.h"

namespace trainyard::ops {
namespace {

// Rows [begin, begin + half) of a rank's, which stand at `position` and after.
struct Chunk {
  int64_t begin;
  int64_t position;
};
Chunk ChunkOf(const Ring& ring, int64_t owner, int64_t half, bool second) {
  const SequencePart of = {.rows = 2 * half, .ranks = ring.ranks, .rank = owner};
  const int64_t begin = second ? half : 0;
  return {.begin = begin, .position = of.position(begin)};
}

}  // namespace

std::vector<TurnPart> PartsOf(const Ring& ring, int64_t turn, int64_t rows,
                              const AttentionMask& mask, bool documents) {
  const int64_t owner = ring.before(turn), half = rows / 2;
  const bool own = owner == ring.rank;
  if (mask.window == 0 && !documents) {
    if (own || !mask.causal) return {{{0, rows, 0, rows, mask}, own}};
    constexpr AttentionMask kAll = {.causal = false};
    return {{owner < ring.rank ? AttentionPart{0, rows, 0, half, kAll}
                               : AttentionPart{half, half, 0, rows, kAll},
             false}};
  }
  std::vector<TurnPart> parts;
  const auto add = [&](bool second_queries, bool second_keys) {
    const Chunk queries = ChunkOf(ring, ring.rank, half, second_queries);
    const Chunk keys = ChunkOf(ring, owner, half, second_keys);
    const int64_t all = ring.ranks * rows;
    // Intervals move forward with the query: from the first one's begin to the last one's end.
    const int64_t begin = KeysSeen(mask, queries.position, all).begin;
    const int64_t end = KeysSeen(mask, queries.position + half - 1, all).end;
    if (begin >= keys.position + half || end <= keys.position) return;
    parts.push_back({{.q_begin = queries.begin,
                      .q_rows = half,
                      .kv_begin = keys.begin,
                      .kv_rows = half,
                      .mask = mask,
                      .q_position = queries.position,
                      .kv_position = keys.position},
                     own && second_queries == second_keys});
  };
  add(false, false);
  add(true, true);
  add(false, true);
  add(true, false);
  return parts;
}

double PairsOn(const Ring& ring, int64_t rows, const AttentionMask& mask) {
  const int64_t half = rows / 2;
  double pairs = 0;
  for (const bool second : {false, true}) {
    const int64_t begin = ChunkOf(ring, ring.rank, half, second).position;
    pairs += PairsSeen(mask, begin, begin + half, ring.ranks * rows);
  }
  return pairs;
}

}  // namespace trainyard::ops
