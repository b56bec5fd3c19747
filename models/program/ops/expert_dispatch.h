// Moves rows between the ranks that hold tokens and the ranks that hold the experts chosen by these
// tokens, in rounds (expert_rounds.h). The host finds the places of the rows, and waits for the
// device to do so. If one rank has all experts and memory for all rows, rows are only sorted, and
// the host takes no part.
//
// Letters: T tokens, K choices of each token, S = T K slots, E experts, n ranks, G = E / n experts
// of a rank, B rows at once.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/program/binder.h"
#include "models/program/ops/expert_rounds.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

struct ExpertDispatchShape {
  AxisSet axes;  // Experts are divided over these axes; empty: one rank has all.
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t experts = 0;
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t width = 0;  // Width of a token's row.
  int64_t bound = 0;

  int64_t slots() const { return tokens * top_k; }
  int64_t local_experts() const { return experts / ranks; }
  // Whether the device finds the places of rows alone.
  bool is_sorting() const { return ranks == 1 && bound == slots(); }
};

// The dispatch of one bound instance. The calls that it makes refer to it, so it must outlive them.
class ExpertDispatch {
 public:
  // The memory that Sort fills. Forward has these as outputs, and backward has them as inputs.
  static std::vector<Recorder::Output> Kept(const ExpertDispatchShape& shape);
  // The further memory that the dispatch needs. Forward and backward have these as outputs.
  static std::vector<Recorder::Output> Memory(const ExpertDispatchShape& shape,
                                              const Precision& precision);

  // `kept` and `memory` hold the tensors of Kept() and Memory(), in order.
  ExpertDispatch(const Binder& binder, const ExpertDispatchShape& shape,
                 std::span<const Tensor> kept, std::span<const Tensor> memory);

  // Returns a call that fills what is kept, from experts [T, K].
  Call Sort(const Binder& binder, Tensor experts) const;
  // Reads what is kept, and returns the number of rounds. All ranks get the same number.
  int64_t Load(const Exec& exec);
  void Begin(const Exec& exec, int64_t round);

  enum class Row : uint8_t {
    kToken,  // [width], dtype of activations.
    kSlot,   // One number, dtype of statistics.
  };
  // Returns a call that moves the rows of the round from x to `grouped`, in order of (expert,
  // source rank, slot). x is [T, width] or [S], `grouped` is [B, width] or [B].
  Call ToExperts(const Binder& binder, Row row, Tensor x, Tensor grouped);
  // Returns the call in the other direction: y = or += the sum of the rows that come back for each
  // row of y.
  Call FromExperts(const Binder& binder, Row row, Tensor grouped, Tensor y, Write write);

  Tensor offsets() const { return offsets_; }    // [G + 1] i32, of the current round.
  Tensor received() const { return received_; }  // [1] i32: offsets()[G].

 private:
  // Buffers for rows at the tokens' rank (`there`) and at the experts' rank (`here`).
  struct Staging {
    Tensor there, here;
  };

  const ExpertDispatchShape shape_;
  const Backend& backend_;
  Collective* const collective_;  // Null for one rank.
  const std::function<void()> check_communication_;
  std::optional<ExpertRounds> rounds_;  // Absent if shape_.is_sorting().
  const Tensor counts_, order_;         // [n, E] and [S] i32.
  Tensor sent_, num_sent_, place_, offsets_, received_, grouped_, ungrouped_;
  Staging token_, slot_;
};

}  // namespace trainyard::ops
