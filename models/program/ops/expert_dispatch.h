// Moves rows between the ranks that hold tokens and those that hold the experts which these tokens
// chose, in rounds (expert_rounds.h). Without other ranks rows are sorted only.
//
// Letters: T tokens, K choices of each, S = T K slots, E experts, n ranks, G = E / n, B rows at
// once.

#pragma once

#include <span>
#include <vector>

#include "models/program/binder.h"
#include "models/program/ops/expert_rounds.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

struct ExpertDispatchShape {
  AxisSet axes;  // Over which experts are divided; empty: one rank has all.
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t experts = 0;
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t width = 0;  // Of a token's row.
  int64_t bound = 0;

  int64_t slots() const { return tokens * top_k; }
  int64_t local_experts() const { return experts / ranks; }
};

// One bound instance's dispatch. Calls that it makes refer to it.
class ExpertDispatch {
 public:
  // The memory of its own that it needs, to be outputs of the instance.
  static std::vector<Recorder::Output> Memory(const ExpertDispatchShape& shape,
                                              const Precision& precision);

  // `memory` as above; counts [n, E] and order [S] are i32.
  ExpertDispatch(const Binder& binder, const ExpertDispatchShape& shape,
                 std::span<const Tensor> memory, Tensor counts, Tensor order);

  // Makes counts and order from experts [T, K].
  Call Sort(const Binder& binder, Tensor experts) const;
  // Reads counts and order; returns the number of rounds, the same on each rank.
  int64_t Load(const Exec& exec);
  void Begin(const Exec& exec, int64_t round);

  enum class Row : uint8_t {
    kToken,  // [width], as activations.
    kSlot,   // One number, dtype of statistics.
  };
  // The rows of x [T, width] or [S] that the round is about, to `grouped` [B, width] or [B] in
  // order of (expert, source rank, slot).
  Call ToExperts(const Binder& binder, Row row, Tensor x, Tensor grouped);
  // The opposite: y = or += the sum of what comes back for each row of y.
  Call FromExperts(const Binder& binder, Row row, Tensor grouped, Tensor y, Write write);

  Tensor offsets() const { return offsets_; }    // [G + 1] i32, of the round begun.
  Tensor received() const { return received_; }  // [1] i32: offsets()[G].

 private:
  // Rows on their way: as they leave or return, and as they arrive.
  struct Staging {
    Tensor there, here;
  };

  const ExpertDispatchShape shape_;
  const Backend& backend_;
  Collective* const collective_;  // Null for one rank.
  const std::function<void()> check_communication_;
  ExpertRounds rounds_;
  const Tensor counts_, order_;
  Tensor sent_, num_sent_, place_, offsets_, received_, grouped_, ungrouped_;
  Staging token_, slot_;
};

}  // namespace trainyard::ops
