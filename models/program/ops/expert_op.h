// What the ops of experts have in common: their sizes, the calls of which they consist, and what
// these cost. expert_mlp.cc has forward, and expert_mlp_backward.h the other direction.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/program/binder.h"
#include "models/program/op.h"
#include "models/program/ops/expert_dispatch.h"
#include "models/program/ops/expert_rounding.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {

// The sizes and options of an expert.
struct ExpertForm {
  int64_t ffn = 0;
  ProductKind kind = ProductKind::kExperts;  // Of the products; not of adapters'.
  bool gated = true;                         // SwiGLU; otherwise squared ReLU.
  bool bias = false;                         // Both products have a bias.
  bool nf4 = false;                          // The weights are in NF4; then nothing is rounded.
  double swiglu_limit = 0;
  bool first_adapter = false, second_adapter = false;  // Of the first and of the second product.
  int64_t rank = 0;                                    // Of the adapters.
  double adapter_scale = 1;
  std::optional<ExpertRounding> rounding = {};  // Of the operands; not of adapters'.

  bool has_histories() const { return rounding && rounding->history > 0; }
  // Whether the weight gradients' products take operands that are not rounded.
  bool rounds_lines() const { return rounding && rounding->of_lines; }
  int up_matrices() const { return gated ? 2 : 1; }
  int matrices() const { return up_matrices() + 1; }
  int64_t up_width() const { return up_matrices() * ffn; }
};

// Returns the index of an operand among those that an instance has. `has` says of each operand
// before it whether the instance has it.
template <typename Operand, typename Has>
size_t IndexOf(Operand operand, const Has& has) {
  size_t index = 0;
  for (int before = 0; before < operand; ++before) index += size_t(has(Operand(before)));
  return index;
}

std::vector<Recorder::Output> Joined(std::vector<Recorder::Output> a,
                                     const std::vector<Recorder::Output>& b);

// The low-rank adapter of one of the products, x [B, K] to y [B, N], bound to memory. Each function
// appends calls. B rows at once, in order of their experts.
struct BoundAdapter {
  Tensor down = {};    // a [G, rank, K]. Without data: there is no adapter.
  Tensor up = {};      // b [G, N, rank]
  Tensor narrow = {};  // [B, rank], memory.
  Tensor offsets = {};
  double scale = 1;

  bool valid() const { return down.data != nullptr; }
  // narrow = scale x a^T
  void Narrow(const Binder& binder, const Tensor& x, std::vector<Call>& calls) const;
  // y += narrow b^T. Needs Narrow.
  void AddOutputs(const Binder& binder, const Tensor& y, std::vector<Call>& calls) const;
  struct Gradients {
    Tensor down, up;
    Write write_down, write_up;
  };
  // Needs Narrow. Computes the gradients of b and of a, and leaves those of x a^T in `narrow`.
  void Backward(const Binder& binder, const Tensor& dy, const Tensor& x, const Gradients& gradients,
                std::vector<Call>& calls) const;
  // dx += what the adapter's part of y adds. Needs Backward.
  void AddInputGradient(const Binder& binder, const Tensor& dx, std::vector<Call>& calls) const;
};

// Sends rows and weights to the experts, and computes the first product.
struct Arrival {
  Tensor x, rows, weights, row_weights;
  ScaledOperand gate_up;
  Tensor up;
  Tensor gate_up_bias = {};  // Without data: none.
  BoundAdapter adapter = {};
  const ExpertRounder& rounder;
  Tensor rounded_rows;  // Without data if the rounder does not round.

  std::vector<Call> Calls(const Binder& binder, ExpertDispatch& dispatch) const;
};

void RunAll(const std::vector<Call>& calls, Exec& exec);

// The base of both directions. Kept from forward to backward: on the experts' rank the rows, their
// weights, each row's gate and up, the narrow rows of the first adapter, and the sorted slots
// (ExpertDispatch::Kept).
class ExpertOp : public Op {
 public:
  ExpertOp(const ExpertDispatchShape& shape, const ExpertForm& form) : shape_(shape), form_(form) {}
  AxisSet group() const override { return shape_.axes; }
  // Otherwise the host reads the number of rows.
  bool is_capturable() const override { return shape_.is_sorting(); }
  // The largest part of a weight in NF4.
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override;
  std::string attributes() const override;

 protected:
  // The communication between tokens and experts: `rows` rows and one number for each slot.
  Communication Travel(const Precision& precision, int64_t rows) const;
  // The communication of the counts: how many slots each rank has for each expert.
  Communication Counts() const;
  // FLOPs of the products of all slots with so many of an expert's matrices.
  double FlopsOf(int matrices) const;
  // FLOPs of all slots' products with both matrices of the adapters that there are.
  double FlopsOfFirstAdapter() const;
  double FlopsOfAdapters() const;
  // Bytes that rounding moves of operands of `bytes` bytes, besides those of the copy that the
  // product reads. An operand whose greatest value is looked for is read once more.
  double BytesOfRounding(double bytes, bool looks_for_amax) const;

  // The scales and groups of a weight that has so many matrices, if `scales` has data.
  static Nf4Operand Nf4Of(const Tensor& scales, const Tensor& groups, int matrices);

  size_t num_kept() const { return ExpertDispatch::Kept(shape_).size(); }
  size_t num_memory() const { return ExpertDispatch::Memory(shape_, Precision::F32()).size(); }

  std::shared_ptr<ExpertDispatch> DispatchOf(const Binder& binder, std::span<const Value> kept,
                                             std::span<const Value> memory) const;
  // Of a forward: its outputs from `first` on are the dispatch's.
  std::shared_ptr<ExpertDispatch> DispatchOf(const Binder& binder, const Instance& instance,
                                             size_t first) const;

  // y is what the second product takes.
  Call Activate(const Binder& binder, Tensor x, Tensor w, Tensor count, Tensor y) const;
  // Replaces x and w by their gradients.
  Call ActivateBackward(const Binder& binder, Tensor dy, Tensor x, Tensor w, Tensor count) const;

  const ExpertDispatchShape shape_;
  const ExpertForm form_;
};

}  // namespace trainyard::ops
