// How the operands of the experts' products are rounded to 8 bits, by grouped_round.h of
// kernels/products.
//
// Each expert's rows, weight and gradients have a scale, as in Transformer Engine's GroupedLinear,
// which splits the rows by expert and gives each piece and each expert's weight a quantizer of its
// own. An expert without rows notes 0. The histories of a layer's experts are one stacked
// parameter, which is divided as the experts are.
//
// Or a scale is of a line: of a row of tokens or gradients, and of the row or column of a weight
// that a product sums. Then a weight is rounded by rows for forward and by columns for the input
// gradient, and the product of the weight gradient takes operands that are not rounded.

#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/program/binder.h"
#include "models/program/product.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

struct ExpertRounding {
  DType input, weight, gradient;  // 8-bit formats.
  int64_t history = 0;            // As in Scaling.
  bool of_lines = false;
};

// The operands of an expert's two products that are rounded. Forward has the first four.
enum class Rounded : uint8_t {
  kFirstInput,
  kFirstWeight,
  kSecondInput,
  kSecondWeight,
  kFirstGradient,
  kSecondGradient,
};
inline constexpr int kRoundedForward = 4, kRoundedBackward = 6;

// Returns how the recording rounds experts; nullopt if it does not. CHECKs that each operand has
// one scale and that operands of the same kind have the same format in all roles, or that scales
// are of lines.
std::optional<ExpertRounding> RoundingOfExperts(const Recorder& recorder);

// Declares the histories of the first `count` operands, of weights that are stacked. Empty if the
// rounding has none.
std::vector<Value> HistoriesOfExperts(Recorder& recorder, const ExpertRounding& rounding,
                                      Value first_weight, Value second_weight, int count);

// The memory for the greatest values and the scales of the first `count` operands: rows, and stacks
// of weights.
struct RoundedShapes {
  int64_t rows;
  Shape first_weight, second_weight;
};
Recorder::Output FactorsOfExperts(const Recorder& recorder, const ExpertRounding& rounding,
                                  const RoundedShapes& shapes, int count);

// An operand as BindProduct takes it.
struct ScaledOperand {
  Tensor values;
  OperandScales scales = {};
  Nf4Operand nf4 = {};  // Of a weight in NF4, whose codes are the values.
};

// Binds the rounding of operands.
class ExpertRounder {
 public:
  // Without a rounding, operands stay as they are. `factors` is the memory of FactorsOfExperts.
  ExpertRounder(const Binder& binder, const std::optional<ExpertRounding>& rounding, Tensor factors)
      : binder_(binder), rounding_(rounding), factors_(factors) {}

  // Sets the history that gives the scale of an operand.
  void set_history(Rounded which, const Tensor& history) { history_[size_t(which)] = history; }
  // From here on, this operand's greatest value goes into the gradient of its history.
  void Note(Rounded which, const Tensor& gradient, Write write) {
    noted_[size_t(which)] = {gradient, write};
  }

  // The rows of `x`, which `offsets` divides among the experts; a stack of weights without offsets.
  // Appends the calls that write the rounded operand to `rounded`, which may be x. Where scales are
  // of lines, the operand is rounded by rows.
  ScaledOperand operator()(Rounded which, const Tensor& x, const Tensor& rounded,
                           const Tensor& offsets, std::vector<Call>& calls) const {
    return Round(which, {x, rounded, offsets}, false, calls);
  }
  // The same of a stack of weights for the input gradient: by columns where scales are of lines.
  ScaledOperand ForInputGradient(Rounded which, const Tensor& x, const Tensor& rounded,
                                 std::vector<Call>& calls) const {
    return Round(which, {x, rounded, {}}, true, calls);
  }

 private:
  struct Noted {
    Tensor gradient = {};
    Write write = Write::kOverwrite;
  };
  struct Operand {
    const Tensor &x, &rounded;
    Tensor offsets;
  };
  ScaledOperand Round(Rounded which, const Operand& operand, bool by_columns,
                      std::vector<Call>& calls) const;
  // Row `row` of the factors, as far as it is needed.
  Tensor Factor(int row, const Shape& shape) const;
  DType FormatOf(Rounded which) const;

  const Binder& binder_;
  const std::optional<ExpertRounding> rounding_;
  const Tensor factors_;
  std::array<Tensor, kRoundedBackward> history_ = {};
  std::array<Noted, kRoundedBackward> noted_ = {};
};

}  // namespace trainyard::ops
