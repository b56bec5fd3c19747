// Where the ranges of a flat coordinate lie in one buffer. Ranges that are never needed at the same
// time may share memory.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/parameter.h"

namespace trainyard {

class FlatMap {
 public:
  // Places a range at element `at` of the buffer. Ranges come in ascending order.
  void Place(const FlatRange& flat, int64_t at);
  // Behind all else.
  void Append(const FlatRange& flat) { Place(flat, elements_); }

  // The element at which the range begins; absent unless all of it lies there, in one piece.
  std::optional<int64_t> Find(const FlatRange& flat) const;
  int64_t elements() const { return elements_; }  // Of the buffer.

 private:
  struct Piece {
    FlatRange flat;
    int64_t at;
  };
  std::vector<Piece> pieces_;  // Ascending; what follows in both coordinates is one piece.
  int64_t elements_ = 0;
};

}  // namespace trainyard
