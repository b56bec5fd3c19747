#include "train/tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/check.h"

namespace trainyard {
namespace {

constexpr size_t kFewSymbols = 48;  // Up to here, looking at all pairs is faster than a heap.

}  // namespace

MergeTable::MergeTable(size_t merges) : room_(merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges, 16));
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t slot = Slot(key);
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kFree) {
    CHECK(room_ > 0) << "more merges than were announced";
    --room_;
  }
  slots_[slot] = {key, merge};
}

void Merger::Join(std::vector<int32_t>& symbols) {
  if (symbols.size() < 2) return;
  symbols.size() <= kFewSymbols ? JoinFew(symbols) : JoinMany(symbols);
}

void Merger::JoinFew(std::vector<int32_t>& symbols) {
  pairs_.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    pairs_.push_back(table_.Find(symbols[i], symbols[i + 1]));
  }
  while (!pairs_.empty()) {
    const auto best = std::min_element(
        pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == MergeTable::kNoRank) return;
    const size_t left = size_t(best - pairs_.begin());
    symbols[left] = best->id;
    symbols.erase(symbols.begin() + std::ptrdiff_t(left) + 1);
    pairs_.erase(best);
    if (left < pairs_.size()) pairs_[left] = table_.Find(symbols[left], symbols[left + 1]);
    if (left > 0) pairs_[left - 1] = table_.Find(symbols[left - 1], symbols[left]);
  }
}

void Merger::Propose(int32_t left) {
  const Symbol& symbol = symbols_[size_t(left)];
  if (symbol.after < 0) return;
  const int32_t right_id = symbols_[size_t(symbol.after)].id;
  const MergeTable::Merge merge = table_.Find(symbol.id, right_id);
  if (merge.rank == MergeTable::kNoRank) return;
  heap_.push_back({merge.rank, left, symbol.id, right_id, merge.id});
}

void Merger::JoinMany(std::vector<int32_t>& symbols) {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  CHECK(symbols.size() <= size_t(std::numeric_limits<int32_t>::max())) << symbols.size();
  const int32_t count = int32_t(symbols.size());
  symbols_.clear();
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols_.push_back({symbols[size_t(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i < count; ++i) Propose(i);
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[size_t(best.left)];
    // A symbol that was joined to the one before it has the id -1.
    if (left.id != best.left_id || left.after < 0) continue;
    Symbol& right = symbols_[size_t(left.after)];
    if (right.id != best.right_id) continue;
    left.id = best.id;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbols_[size_t(left.after)].before = best.left;
    for (const int32_t changed : {left.before, best.left}) {
      if (changed < 0) continue;
      const size_t size = heap_.size();
      Propose(changed);
      if (heap_.size() > size) std::push_heap(heap_.begin(), heap_.end(), later);
    }
  }
  symbols.clear();
  for (int32_t i = 0; i >= 0; i = symbols_[size_t(i)].after)
    symbols.push_back(symbols_[size_t(i)].id);
}

}  // namespace trainyard
