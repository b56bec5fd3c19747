// With a plain causal mask, each turn has one part, and all ranks have equal work:
//
//   t = 0                own keys: causal, all of this rank's rows in order
//   from a lower rank    all queries see the first chunk of keys and not the second
//   from a higher rank   only the second chunk of queries sees the keys, and both chunks of them
//
// With a full mask, a turn has one part with all rows. If positions count (windows, documents,
// dropout), a part is one chunk of queries over one chunk of keys, and positions within a chunk are
// consecutive.
#include "models/program/ops/context_parts.h"

namespace trainyard::ops {
namespace {

// Rows [begin, begin + half) of a rank, whose positions begin at `position`.
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
                              const AttentionMask& mask, bool by_position) {
  const int64_t owner = ring.before(turn), half = rows / 2;
  const bool own = owner == ring.rank;
  if (mask.window == 0 && !by_position) {
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
    // The intervals of keys move forward with the query. So they lie between the begin of the first
    // query's interval and the end of the last query's.
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
