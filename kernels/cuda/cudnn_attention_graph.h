// Attention as a graph of cuDNN, described through NVIDIA's header-only frontend. cuDNN wants
// tensors with heads first, [B, heads, S, d], and takes any strides, so it reads and writes within
// packed rows.

#pragma once

#include <cudnn_frontend.h>

#include <memory>

#include "kernels/cudnn_attention_plan.h"

namespace trainyard::cuda {

// The ids of a call's tensors in graphs.
enum AttentionTensor : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// How cuDNN chooses among its kernels: by rules, without timing.
inline constexpr auto kPlanChoice = cudnn_frontend::HeurMode_t::A;

class AttentionGraph {
 public:
  AttentionGraph(const CudnnAttentionPlan& plan, cudnn_frontend::graph::Graph& graph)
      : plan_(plan), graph_(graph) {}

  void Describe() {
    graph_.set_io_data_type(cudnn_frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
    plan_.pass == AttentionPass::kForward ? DescribeForward() : DescribeBackward();
  }

 private:
  using Attributes = cudnn_frontend::graph::Tensor_attributes;

  void DescribeForward() {
    auto options = cudnn_frontend::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(
        float(plan_.dims.scale));
    SetMask(options);
    const auto [out, lse] =
        graph_.sdpa(Input(Query(kQ)), Input(Key(kK)), Input(Value(kV)), options);
    Output(out, Mixed(kOut));
    Output(lse, Lse());
    lse->set_data_type(cudnn_frontend::DataType_t::FLOAT);
  }

  void DescribeBackward() {
    auto options = cudnn_frontend::graph::SDPA_backward_attributes()
                       .set_attn_scale(float(plan_.dims.scale))
                       .set_deterministic_algorithm(plan_.deterministic);
    SetMask(options);
    const auto [dq, dk, dv] =
        graph_.sdpa_backward(Input(Query(kQ)), Input(Key(kK)), Input(Value(kV)), Input(Mixed(kOut)),
                             Input(Mixed(kDout)), Input(Lse()), options);
    Output(dq, Query(kDq));
    Output(dk, Key(kDk));
    Output(dv, Value(kDv));
  }

  // A query at row i sees the key at column j if j <= i and, with a window W, j + W > i.
  template <typename Options>
  void SetMask(Options& options) const {
    const AttentionMask& mask = plan_.dims.mask;
    if (mask.causal) options.set_causal_mask(true);
    if (mask.window > 0) options.set_diagonal_band_left_bound(int(mask.window));
  }

  // `heads` heads of `width` elements within rows of `row` elements.
  Attributes Heads(AttentionTensor id, int64_t heads, int64_t width, int64_t row) const {
    const int64_t s = plan_.dims.sequence;
    return Attributes()
        .set_uid(id)
        .set_dim({plan_.sequences, heads, s, width})
        .set_stride({s * row, width, row, 1});
  }
  Attributes Query(AttentionTensor id) const {
    return Heads(id, plan_.dims.heads, plan_.dims.head_dim, PackedWidth(plan_.dims));
  }
  Attributes Key(AttentionTensor id) const {
    return Heads(id, plan_.dims.kv_heads, plan_.dims.head_dim, PackedWidth(plan_.dims));
  }
  Attributes Value(AttentionTensor id) const {
    return Heads(id, plan_.dims.kv_heads, plan_.dims.value_dim, PackedWidth(plan_.dims));
  }
  Attributes Mixed(AttentionTensor id) const {
    return Heads(id, plan_.dims.heads, plan_.dims.value_dim, plan_.dims.out_columns());
  }
  // Log sum exp of scaled scores, in natural logarithms, as in attention.h.
  Attributes Lse() const {
    const int64_t a = plan_.dims.heads, s = plan_.dims.sequence;
    return Attributes()
        .set_uid(kLse)
        .set_dim({plan_.sequences, a, s, 1})
        .set_stride({a * s, s, 1, 1})
        .set_data_type(cudnn_frontend::DataType_t::FLOAT);
  }

  std::shared_ptr<Attributes> Input(const Attributes& where) { return graph_.tensor(where); }
  // Makes `value` an output with the layout of `where`.
  static void Output(const std::shared_ptr<Attributes>& value, const Attributes& where) {
    value->set_output(true)
        .set_uid(where.get_uid())
        .set_dim(where.get_dim())
        .set_stride(where.get_stride());
  }

  const CudnnAttentionPlan& plan_;
  cudnn_frontend::graph::Graph& graph_;
};

inline void DescribeAttention(const CudnnAttentionPlan& plan, cudnn_frontend::graph::Graph& graph) {
  AttentionGraph(plan, graph).Describe();
}

}  // namespace trainyard::cuda
