// Attention as a graph of cuDNN, described through NVIDIA's header-only frontend. cuDNN wants
// tensors with heads first, [B, heads, rows, d], and takes any strides, so it reads and writes
// within packed rows, and within those of a part.

#pragma once

#include <cudnn_frontend.h>

#include <memory>

#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/cudnn_attention_call.h"

namespace trainyard::cuda {

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
        graph_.sdpa(Input(Query(kQ, plan_.query_stride())), Input(Key(kK, plan_.key_stride())),
                    Input(Value(kV, plan_.key_stride())), options);
    Output(out, Mixed(kOut));
    Output(lse, Lse());
    lse->set_data_type(cudnn_frontend::DataType_t::FLOAT);
  }

  void DescribeBackward() {
    auto options = cudnn_frontend::graph::SDPA_backward_attributes()
                       .set_attn_scale(float(plan_.dims.scale))
                       .set_deterministic_algorithm(plan_.deterministic);
    SetMask(options);
    const auto [dq, dk, dv] = graph_.sdpa_backward(
        Input(Query(kQ, plan_.query_stride())), Input(Key(kK, plan_.key_stride())),
        Input(Value(kV, plan_.key_stride())), Input(Mixed(kOut)), Input(Mixed(kDout)), Input(Lse()),
        options);
    const int64_t queries = plan_.dquery_stride(), keys = plan_.dkey_stride();
    Output(dq, Query(kDq, queries));
    Output(dk, Key(kDk, keys));
    Output(dv, Value(kDv, keys));
  }

  // A query at row i sees the key at column j if j <= i and, with a window W, j + W > i.
  template <typename Options>
  void SetMask(Options& options) const {
    const AttentionMask& mask = plan_.dims.mask;
    if (mask.causal) options.set_causal_mask(true);
    if (mask.window > 0) options.set_diagonal_band_left_bound(int(mask.window));
  }

  // `heads` heads of `width` elements, within `rows` rows of each sequence that are `stride`
  // elements apart.
  Attributes Heads(AttentionTensor id, int64_t heads, int64_t width, int64_t rows,
                   int64_t stride) const {
    return Attributes()
        .set_uid(id)
        .set_dim({plan_.sequences, heads, rows, width})
        .set_stride({plan_.dims.sequence * stride, width, stride, 1});
  }
  Attributes Query(AttentionTensor id, int64_t stride) const {
    return Heads(id, plan_.dims.heads, plan_.dims.head_dim, plan_.queries(), stride);
  }
  Attributes Key(AttentionTensor id, int64_t stride) const {
    return Heads(id, plan_.dims.kv_heads, plan_.dims.head_dim, plan_.keys(), stride);
  }
  Attributes Value(AttentionTensor id, int64_t stride) const {
    return Heads(id, plan_.dims.kv_heads, plan_.dims.value_dim, plan_.keys(), stride);
  }
  Attributes Mixed(AttentionTensor id) const {
    return Heads(id, plan_.dims.heads, plan_.dims.value_dim, plan_.queries(),
                 plan_.dims.out_columns());
  }
  // Log sum exp of scaled scores, in natural logarithms, as in attention.h. Backward takes no other
  // strides.
  Attributes Lse() const {
    const int64_t a = plan_.dims.heads, rows = plan_.queries();
    return Attributes()
        .set_uid(kLse)
        .set_dim({plan_.sequences, a, rows, 1})
        .set_stride({a * rows, rows, 1, 1})
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
