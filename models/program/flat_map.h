// Maps ranges of a flat coordinate to places in one buffer. Ranges that are never needed at the
// same time may share memory.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/parameter.h"

namespace trainyard {

class FlatMap {
 public:
  // Places a range at element `at` of the buffer. Ranges must come in ascending order.
  void Place(const FlatRange& flat, int64_t at);
  // Places a range behind all others.
  void Append(const FlatRange& flat) { Place(flat, elements_); }

  // Returns the element at which the range begins. Returns nullopt unless the whole range lies in
  // the buffer in one piece.
  std::optional<int64_t> Find(const FlatRange& flat) const;
  std::vector<FlatRange> ranges() const;          // What the buffer holds, ascending.
  int64_t elements() const { return elements_; }  // Size of the buffer.

 private:
  struct Piece {
    FlatRange flat;
    int64_t at;
  };
  std::vector<Piece> pieces_;  // Ascending; ranges adjacent in both coordinates are merged.
  int64_t elements_ = 0;
};

}  // namespace trainyard
