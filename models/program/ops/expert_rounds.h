// Which rows go where, where the experts of a layer are divided over the ranks of a group: found on
// the host from how many slots each rank has for each expert, so that all ranks find the same.
//
// A slot is one token's choice of one expert. Rank r has the experts [r G, (r + 1) G). The rows
// that it is sent follow one another by (source rank, expert, slot); every `bound` of them are a
// *round*. All ranks take part in as many rounds as the fullest one needs, so that none receives
// more than `bound` rows at once, however uneven the choice.
//
// Letters: n ranks, E experts, G = E / n of them on a rank, S slots of a rank, B = bound.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::ops {

struct ExpertRoundsOptions {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t experts = 0;  // A multiple of ranks.
  int64_t slots = 0;    // The same on each rank.
  int64_t bound = 0;    // >= 1
};

// Allocates on construction alone. Not thread-safe.
class ExpertRounds {
 public:
  explicit ExpertRounds(const ExpertRoundsOptions& options);

  // To be filled before the rest is asked for.
  std::span<int32_t> counts() { return counts_; }  // [n, E]: slots of each rank by expert.
  std::span<int32_t> order() { return order_; }    // [S]: this rank's, by (expert, slot).

  // At least one, for each rank the same.
  int64_t Count() const;

  // Finds what this rank sends and receives in round i of Count().
  void Begin(int64_t round);

  // Of the round begun. Rows to and from each rank of the group.
  std::span<const int64_t> send_rows() const { return send_rows_; }
  std::span<const int64_t> receive_rows() const { return receive_rows_; }
  // The slots that are sent, by receiving rank; and for each slot of this rank its place among
  // them, -1 where it belongs to another round.
  std::span<const int32_t> sent() const { return {sent_.data(), size_t(num_sent_)}; }
  std::span<const int32_t> place() const { return place_; }  // [S]
  // Received rows, in order of (expert, source rank, slot): where they lie among those received;
  // and the inverse. Expert g of this rank has rows [offsets[g], offsets[g + 1]) of that order.
  std::span<const int32_t> grouped() const { return {grouped_.data(), size_t(offsets_.back())}; }
  std::span<const int32_t> ungrouped() const {
    return {ungrouped_.data(), size_t(offsets_.back())};
  }
  std::span<const int32_t> offsets() const { return offsets_; }  // [G + 1]

 private:
  int64_t RowsBetween(int64_t source, int64_t target) const;
  void Send(int64_t begin, int64_t end);
  void Receive(int64_t begin, int64_t end);

  const ExpertRoundsOptions options_;
  const int64_t local_;  // G
  std::vector<int32_t> counts_, order_, sent_, place_, grouped_, ungrouped_, offsets_, next_;
  std::vector<int64_t> send_rows_, receive_rows_;
  int64_t num_sent_ = 0;
};

}  // namespace trainyard::ops
