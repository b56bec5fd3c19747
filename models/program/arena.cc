#include "models/program/arena.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace trainyard {
namespace {

struct Interval {
  size_t begin = 0, end = 0;
};

// A union of intervals: sorted, disjoint, and none touches the next.
class IntervalUnion {
 public:
  void Add(Interval added) {
    const auto first =
        std::lower_bound(intervals_.begin(), intervals_.end(), added.begin,
                         [](const Interval& i, size_t begin) { return i.end < begin; });
    auto last = first;
    for (; last != intervals_.end() && last->begin <= added.end; ++last) {
      added = {std::min(added.begin, last->begin), std::max(added.end, last->end)};
    }
    intervals_.insert(intervals_.erase(first, last), added);
  }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  std::vector<Interval> intervals_;
};

// A range of times, both ends included.
struct Times {
  size_t first = 0, last = 0;

  bool meets(const Times& o) const { return first <= o.last && o.first <= last; }
  bool within(const Times& o) const { return o.first <= first && last <= o.last; }
  std::pair<Times, Times> halves() const {
    const size_t middle = (first + last) / 2;
    return {{first, middle}, {middle + 1, last}};
  }
};

// The bytes that are taken in a range of times: a segment tree over times 0 to `times` - 1.
class Occupancy {
 public:
  explicit Occupancy(size_t times) : all_{0, times - 1}, nodes_(4 * times) {}

  void Add(Times when, Interval bytes) { Add(1, all_, when, bytes); }

  // Returns the intervals that are taken at any of these times, in no order.
  std::vector<Interval> Taken(Times when) const {
    std::vector<Interval> taken;
    Collect(1, all_, when, taken);
    return taken;
  }

 private:
  struct Node {
    IntervalUnion throughout;  // At all times of the node, but not of its parent.
    IntervalUnion sometime;    // At any time, and not throughout the parent's.
  };

  void Add(size_t node, Times its, Times when, Interval bytes) {
    if (!its.meets(when)) return;
    nodes_[node].sometime.Add(bytes);
    if (its.within(when)) return nodes_[node].throughout.Add(bytes);
    const auto [lower, upper] = its.halves();
    Add(2 * node, lower, when, bytes);
    Add(2 * node + 1, upper, when, bytes);
  }

  void Collect(size_t node, Times its, Times when, std::vector<Interval>& taken) const {
    if (!its.meets(when)) return;
    const bool within = its.within(when);
    const Node& at = nodes_[node];
    const auto& found = (within ? at.sometime : at.throughout).intervals();
    taken.insert(taken.end(), found.begin(), found.end());
    if (within) return;
    const auto [lower, upper] = its.halves();
    Collect(2 * node, lower, when, taken);
    Collect(2 * node + 1, upper, when, taken);
  }

  const Times all_;
  std::vector<Node> nodes_;  // The children of n are 2n and 2n + 1.
};

// Returns the begin of the smallest gap of at least `bytes` bytes. The last gap has no end.
size_t SmallestGap(std::vector<Interval> taken, size_t bytes) {
  std::sort(taken.begin(), taken.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  size_t best = kNone, best_gap = kNone, free_from = 0;
  for (const Interval& next : taken) {
    if (next.begin > free_from) {
      const size_t gap = next.begin - free_from;
      if (gap >= bytes && gap < best_gap) best = free_from, best_gap = gap;
    }
    free_from = std::max(free_from, next.end);
  }
  return best == kNone ? free_from : best;
}

std::vector<size_t> Indices(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

}  // namespace

ArenaLayout PlaceBestFit(const std::vector<Piece>& pieces) {
  ArenaLayout layout{.offsets = std::vector<size_t>(pieces.size())};
  if (pieces.empty()) return layout;
  std::vector<int64_t> times;  // The times at which a piece begins or ends; no others matter.
  for (const Piece& piece : pieces) times.insert(times.end(), {piece.first, piece.last});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto index = [&](int64_t time) {
    return size_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  std::vector<size_t> order = Indices(pieces.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  Occupancy occupancy(times.size());
  for (const size_t i : order) {
    const Piece& piece = pieces[i];
    const Times when{index(piece.first), index(piece.last)};
    const size_t offset = SmallestGap(occupancy.Taken(when), piece.bytes);
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + piece.bytes);
    if (piece.bytes > 0) occupancy.Add(when, {offset, offset + piece.bytes});
  }
  return layout;
}

std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces,
                                                     const std::vector<size_t>& offsets) {
  std::vector<size_t> by_first = Indices(pieces.size()), by_last = by_first;
  std::sort(by_first.begin(), by_first.end(),
            [&](size_t a, size_t b) { return pieces[a].first < pieces[b].first; });
  std::sort(by_last.begin(), by_last.end(),
            [&](size_t a, size_t b) { return pieces[a].last < pieces[b].last; });
  // The pieces that are alive, by begin and end. They do not overlap, so only neighbours can
  // overlap a new piece.
  std::set<std::tuple<size_t, size_t, size_t>> alive;
  const auto place = [&](size_t i) {
    return std::tuple(offsets[i], offsets[i] + pieces[i].bytes, i);
  };
  auto next_dead = by_last.begin();
  for (const size_t i : by_first) {
    for (; pieces[*next_dead].last < pieces[i].first; ++next_dead) alive.erase(place(*next_dead));
    const auto at = alive.insert(place(i)).first;
    const auto [begin, end, piece] = *at;
    if (at != alive.begin()) {
      const auto [below, below_end, other] = *std::prev(at);
      if (below_end > begin) return std::pair(other, i);
    }
    if (const auto above = std::next(at); above != alive.end() && std::get<0>(*above) < end) {
      return std::pair(std::get<2>(*above), i);
    }
  }
  return std::nullopt;
}

}  // namespace trainyard
