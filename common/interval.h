// The legal values of a number: the rule, its words for messages, and the nearest legal value.

#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace trainyard {

// Real numbers. An end is in the interval (`least`, `most`) or is not (`above`, `below`).
struct Interval {
  static constexpr double kNoEnd = std::numeric_limits<double>::infinity();
  double least = -kNoEnd, above = -kNoEnd;
  double most = kNoEnd, below = kNoEnd;
  const char* zero = nullptr;  // 0 is legal, also outside of the ends, and means this: "none".
  const char* note = nullptr;  // For a person: "usual: 0.1".

  bool Holds(double x) const;
  std::string Words() const;  // "0 (none) <= x < 1 (usual: 0.1)"
  // Returns a legal number near an illegal one: an end, or 0.01 below an upper end that is not in
  // the interval. Returns "" if it would be a lower end that is not in the interval.
  std::string Nearest(double x) const;
};

// The multiples of a number. Both limits must be multiples.
struct WholeNumbers {
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t multiple = 1;
  const char* note = nullptr;  // As above.

  bool Holds(int64_t x) const { return x >= least && x <= most && x % multiple == 0; }
  std::string Words() const;  // "1 to 8", "an even number from 2 to 256"
  int64_t Nearest(int64_t x) const;
};

}  // namespace trainyard
