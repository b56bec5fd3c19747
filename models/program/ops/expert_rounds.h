// Finds which rows go to which rank if the experts of a layer are divided over the ranks of a
// group. The host computes this from the number of slots that each rank has for each expert, so all
// ranks get the same result.
//
// A slot is one token's choice of one expert. Rank r has the experts [r G, (r + 1) G). The rows
// sent to a rank are ordered by (source rank, expert, slot), and every `bound` of them form a
// *round*. All ranks take part in as many rounds as the rank with the most rows needs. So no rank
// receives more than `bound` rows at once, however uneven the choice is.
//
// Letters: n ranks, E experts, G = E / n experts of a rank, S slots of a rank, B = bound.

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

// Allocates only in the constructor. Not thread-safe.
class ExpertRounds {
 public:
  explicit ExpertRounds(const ExpertRoundsOptions& options);

  // The caller must fill these two before it calls the functions below.
  std::span<int32_t> counts() { return counts_; }  // [n, E]: slots of each rank by expert.
  std::span<int32_t> order() { return order_; }    // [S]: this rank's slots, by (expert, slot).

  // The number of rounds: at least one, and the same on each rank.
  int64_t Count() const;

  // Finds what this rank sends and receives in round i of Count().
  void Begin(int64_t round);

  // The rest describes the round begun. Rows sent to and received from each rank of the group.
  std::span<const int64_t> send_rows() const { return send_rows_; }
  std::span<const int64_t> receive_rows() const { return receive_rows_; }
  // The slots that are sent, in order of the receiving rank. `place` has the index of each slot of
  // this rank among the sent ones, or -1 if the slot belongs to another round.
  std::span<const int32_t> sent() const { return {sent_.data(), size_t(num_sent_)}; }
  std::span<const int32_t> place() const { return place_; }  // [S]
  // The order of received rows by (expert, source rank, slot). `grouped` maps this order to the
  // index of a row as received, and `ungrouped` is the inverse. Expert g of this rank has the rows
  // [offsets[g], offsets[g + 1]) of this order.
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
