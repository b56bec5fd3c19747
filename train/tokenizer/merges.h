// Byte-pair encoding: joins the symbols of a word, two neighbours at a time. Of all pairs that may
// be joined, the one of the lowest rank comes first, and of these the leftmost.
//
// Source: Sennrich, Haddow & Birch 2016, arXiv:1508.07909, algorithm 1.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace trainyard {

// What may be joined. Thread-safe once it is full.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;  // What the pair becomes.
  };

  explicit MergeTable(size_t merges);  // How many there will be, at most.

  // A later merge of the same pair replaces an earlier one. CHECKs that there is room.
  void Add(int32_t left, int32_t right, Merge merge);

  // rank is kNoRank if the pair may not be joined.
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t slot = Slot(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // No pair: ids are not negative.
  struct Entry {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  }
  size_t Slot(uint64_t key) const { return size_t((key * 0x9E3779B97F4A7C15u) >> shift_); }

  int shift_ = 0;
  size_t mask_ = 0;
  size_t room_ = 0;
  std::vector<Entry> slots_;
};

// Joins words. Keeps its memory from word to word. Not thread-safe.
class Merger {
 public:
  // The table must outlive the merger.
  explicit Merger(const MergeTable& table) : table_(table) {}

  // Joins what can be joined. Takes n^2 time for few symbols, and n log n for many.
  void Join(std::vector<int32_t>& symbols);

 private:
  struct Symbol {
    int32_t id;
    int32_t before, after;  // Indices; -1: none.
  };
  struct Candidate {
    uint32_t rank;
    int32_t left;               // Index of the symbol.
    int32_t left_id, right_id;  // The pair as it was. If it has changed, nothing is joined.
    int32_t id;
  };
  void JoinFew(std::vector<int32_t>& symbols);
  void JoinMany(std::vector<int32_t>& symbols);
  void Propose(int32_t left);

  const MergeTable& table_;
  std::vector<MergeTable::Merge> pairs_;  // Of each symbol with the next one.
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace trainyard
