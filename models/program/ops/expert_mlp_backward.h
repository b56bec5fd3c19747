// The backward pass of the experts' op. Rows, their weights and what lies between the products are
// kept by forward, and overwritten.

#pragma once

#include <vector>

#include "models/program/ops/expert_op.h"

namespace trainyard::ops {

class ExpertMlpBackwardOp final : public ExpertOp {
 public:
  // An instance has those of which Has() is true. What the dispatch keeps comes last.
  enum Input {
    kDy,
    kX,
    kWeights,
    kGateUp,
    kDown,
    kRows,
    kRowWeights,
    kUp,
    kGateUpScales,  // Of weights in NF4.
    kGateUpGroups,
    kDownScales,
    kDownGroups,
    kGateUpBias,
    kDownBias,
    kFirstDown,  // The matrices of the first product's adapter, and its narrow rows.
    kFirstUp,
    kFirstNarrow,
    kSecondDown,
    kSecondUp,
    kHistory,  // The first of those of all rounded operands, in the order of Rounded.
    kLastHistory = kHistory + kRoundedBackward - 1,
    kInputs
  };
  // An instance has those of which Has() is true. The gradients of rows and of the values between
  // the products, the narrow rows of the second adapter, and what is rounded are memory. The
  // dispatch's memory comes last.
  enum Output {
    kDx,
    kDweights,
    kDgateUp,
    kDdown,
    kDrows,
    kDhidden,
    kDgateUpBias,
    kDdownBias,
    kDfirstDown,
    kDfirstUp,
    kDsecondDown,
    kDsecondUp,
    kSecondNarrow,
    kDhistory,  // The first of the histories' gradients.
    kLastDhistory = kDhistory + kRoundedBackward - 1,
    kFactors,
    kRoundedRows,
    kRoundedGateUp,
    kRoundedDown,
    kDispatch
  };
  // Which gradients are computed besides those of the adapters.
  struct Trainable {
    bool gate_up = true;
    bool down = true;
    bool gate_up_bias = true;
    bool down_bias = true;
  };

  ExpertMlpBackwardOp(const ExpertDispatchShape& shape, const ExpertForm& form,
                      const Trainable& trainable)
      : ExpertOp(shape, form), trainable_(trainable) {}
  absl::string_view name() const override { return "expert_mlp_backward"; }
  bool Has(Input input) const;
  bool Has(Output output) const;
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = At(kInputs) + num_kept(),
                         .outputs = At(kDispatch) + num_memory()};
  }
  bool Overwrites(int input) const override;
  // Does not count the forward that further rounds repeat, nor the second adapter's narrow rows,
  // which forward computed, too.
  Cost CostOf(const Program& program, const Instance& instance) const override;
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {Travel(program.precision, 2)};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override;

 private:
  struct Operands;
  // The index of an operand, or of the next one if it is missing.
  template <typename Operand>
  size_t At(Operand operand) const {
    return IndexOf(operand, [this](Operand before) { return Has(before); });
  }
  // The adapters, without data if they are missing.
  BoundAdapter FirstAdapter(const Operands& operands, const ExpertDispatch& dispatch) const;
  BoundAdapter SecondAdapter(const Operands& operands, const ExpertDispatch& dispatch) const;
  // Backward for rows that have arrived: of the second product and of the first one.
  std::vector<Call> Round(const Operands& operands, ExpertDispatch& dispatch) const;
  void SecondProduct(const Operands& operands, ExpertDispatch& dispatch,
                     std::vector<Call>& calls) const;
  void FirstProduct(const Operands& operands, ExpertDispatch& dispatch,
                    std::vector<Call>& calls) const;

  const Trainable trainable_;
};

}  // namespace trainyard::ops
