// Which attention cuDNN can compute (cuda/cudnn_attention.h), and the device memory that such calls
// keep from one call to the next, besides their tensors. Both are known without a GPU and without
// the library, so that memory can be planned. tests/kernels/attention/cudnn_plans_test.cc compares
// with cuDNN's own plans.
//
// Letters: B sequences, S tokens of each, a query heads, g key/value heads, d head dim of queries
// and keys, e of values.

#pragma once

#include <optional>
#include <tuple>

#include "kernels/attention/attention_part.h"

namespace trainyard {

// Sequences must be whole tiles of this many tokens: with other lengths, graphs of some versions of
// cuDNN read beyond the end.
inline constexpr int64_t kCudnnTokens = 128;

// Whether cuDNN computes plain attention (IsPlain) of these sizes. Sequences that are not whole
// tiles are padded, which only a causal mask allows: queries of a full mask would see the padding.
inline bool CudnnTakes(DType dtype, const AttentionDims& dims) {
  const auto fits = [](int64_t width) { return width >= 64 && width <= 256 && width % 8 == 0; };
  const bool whole = dims.mask.causal || dims.sequence % kCudnnTokens == 0;
  return dtype == DType::kBF16 && fits(dims.head_dim) && fits(dims.value_dim) &&
         dims.value_dim <= dims.head_dim && whole;
}

// Returns the mask between the rows of a part, counted from the part's first rows, if cuDNN
// computes the part, plain: the mask begins at the first rows, or every query sees all keys of the
// part.
inline std::optional<AttentionMask> CudnnPartMask(DType dtype, AttentionDims dims,
                                                  const AttentionPart& part) {
  if (part.q_rows % kCudnnTokens != 0 || part.kv_rows % kCudnnTokens != 0) return std::nullopt;
  if (part.kv_sequence > 0) return std::nullopt;
  dims.sequence = part.q_rows;
  if (!CudnnTakes(dtype, dims)) return std::nullopt;
  const AttentionMask& mask = part.mask;
  if (!mask.causal) return mask;
  const int64_t before = part.q_position - part.kv_position;
  if (before == 0 && part.q_rows == part.kv_rows) return mask;
  const bool sees_last = before >= part.kv_rows - 1;
  const bool sees_first = mask.window == 0 || part.q_rows + before <= mask.window;
  if (sees_last && sees_first) return AttentionMask{.causal = false};
  return std::nullopt;
}

// The elements of one token's row of qkv.
inline int64_t PackedWidth(const AttentionDims& dims) {
  return dims.query_columns() + dims.key_columns() + dims.value_columns();
}

// Returns S rounded up to a multiple of `tokens`. Returns 0 if that more than doubles the work, or
// if a padded sequence of qkv has more bytes than CUDA copies at once (2 GiB).
inline int64_t PaddedSequence(DType dtype, const AttentionDims& dims, int64_t tokens) {
  constexpr size_t kLongestCopy = (size_t{1} << 31) - 1;
  const int64_t padded = (dims.sequence + tokens - 1) / tokens * tokens;
  const bool fits = size_t(padded * PackedWidth(dims)) * SizeOf(dtype) <= kLongestCopy;
  return padded <= 2 * dims.sequence && fits ? padded : 0;
}

enum class AttentionPass : uint8_t { kForward, kBackward };

// The rows of a part, of each sequence, and the elements from row to row of queries, and of keys
// and values. The part's gradients lie in rows of their own, those of keys and values side by side.
struct PartRows {
  int64_t queries;
  int64_t keys;
  int64_t query_stride;
  int64_t key_stride;

  auto operator<=>(const PartRows&) const = default;
};

// The most bytes that a plan may keep to sum gradients in one order. That memory grows with the
// square of the sequence: 16 GiB for 32 heads and 16,384 tokens. Above the limit our kernels
// compute the gradients. They sum in one order without such memory, at about half of cuDNN's rate
// (an estimate: no GPU has run them).
inline constexpr int64_t kMostOrderedBytes = int64_t{8} << 30;

// One plan of cuDNN's for plain attention (IsPlain): over packed rows, all of them, or of a part.
// The numbers of rows are multiples of kCudnnTokens.
struct CudnnAttentionPlan {
  AttentionPass pass = AttentionPass::kForward;
  int64_t sequences = 0;  // B
  AttentionDims dims = {};
  bool deterministic = true;  // As in AttentionBackwardArgs; true for forward.
  std::optional<PartRows> part = {};

  int64_t queries() const { return part ? part->queries : dims.sequence; }
  int64_t keys() const { return part ? part->keys : dims.sequence; }
  int64_t query_stride() const { return part ? part->query_stride : PackedWidth(dims); }
  int64_t key_stride() const { return part ? part->key_stride : PackedWidth(dims); }
  int64_t dquery_stride() const { return part ? dims.query_columns() : PackedWidth(dims); }
  int64_t dkey_stride() const {
    return part ? dims.key_columns() + dims.value_columns() : PackedWidth(dims);
  }

  auto Key() const {
    return std::tuple(pass, sequences, dims.sequence, dims.heads, dims.kv_heads, dims.head_dim,
                      dims.value_dim, dims.scale, dims.mask.causal, dims.mask.window, deterministic,
                      part);
  }
  // Equal for plans that need the same workspace. Calls of one stream run one after the other, so
  // these plans can share the workspace.
  auto WorkspaceKey() const {
    return std::tuple(pass, sequences, queries(), keys(), dims.heads, dims.kv_heads, dims.head_dim,
                      dims.value_dim, deterministic);
  }
  bool operator<(const CudnnAttentionPlan& other) const { return Key() < other.Key(); }

  // A square of bf16 for every head, from which the gradients of queries are summed in one order.
  int64_t OrderedBytes() const {
    const bool ordered = pass == AttentionPass::kBackward && deterministic;
    return ordered ? sequences * dims.heads * queries() * keys() * int64_t{sizeof(uint16_t)} : 0;
  }
  bool IsUsed() const { return OrderedBytes() <= kMostOrderedBytes; }

  // The bytes of the plan's workspace: a fixed amount and, for backward,
  // - a value for each query;
  // - the gradients of keys and values for each query head, if heads share them;
  // - OrderedBytes; or, if not deterministic, the gradients of queries in f32, to which blocks of
  //   keys add as they come.
  // As cuDNN 9.19 says of its plans for a described H200 (cudnn_plans_test). No GPU has run them.
  int64_t WorkspaceBytes() const {
    constexpr int64_t kOwn = 256;
    if (pass == AttentionPass::kForward) return kOwn;
    const int64_t heads = sequences * dims.heads, d = dims.head_dim, e = dims.value_dim;
    const bool share = dims.kv_heads < dims.heads;
    const int64_t shared = share ? heads * keys() * (d + e) * int64_t{sizeof(uint16_t)} : 0;
    const int64_t added = heads * queries() * d * int64_t{sizeof(float)};
    return kOwn + heads * queries() * int64_t{sizeof(float)} + shared +
           (deterministic ? OrderedBytes() : added);
  }
};

// Returns the plan for a whole call of this dtype on B sequences of plan.dims.sequence tokens: with
// the length to which sequences are padded. Returns nullopt if our kernels compute the call.
inline std::optional<CudnnAttentionPlan> CudnnWholePlan(DType dtype, CudnnAttentionPlan plan) {
  if (!CudnnTakes(dtype, plan.dims)) return std::nullopt;
  if (plan.dims.sequence % kCudnnTokens != 0) {
    plan.dims.sequence = PaddedSequence(dtype, plan.dims, kCudnnTokens);
  }
  if (plan.dims.sequence == 0 || !plan.IsUsed()) return std::nullopt;
  return plan;
}

// The bytes that a GPU keeps for calls of attention on B sequences of dims.sequence tokens: the
// workspace of their plan and, if sequences are padded, copies of their tensors. 0 if our kernels
// compute the call.
inline int64_t CudnnKeptBytes(DType dtype, const CudnnAttentionPlan& of_call) {
  const std::optional<CudnnAttentionPlan> plan = CudnnWholePlan(dtype, of_call);
  if (!plan) return 0;
  if (plan->dims.sequence == of_call.dims.sequence) return plan->WorkspaceBytes();
  const bool backward = plan->pass == AttentionPass::kBackward;
  const int64_t tokens = plan->sequences * plan->dims.sequence;
  const int64_t packed = PackedWidth(plan->dims), mixed = plan->dims.out_columns();
  // qkv, out, and lse in f32; backward also has dqkv and dout.
  const int64_t copies = tokens * (packed + mixed) * int64_t(SizeOf(dtype)) * (backward ? 2 : 1) +
                         tokens * plan->dims.heads * int64_t{sizeof(float)};
  return plan->WorkspaceBytes() + copies;
}

// The bytes that a GPU keeps for the results of a part of B sequences of dims.sequence tokens,
// besides the workspace of its plan (cuda/attention_by_parts.h).
inline int64_t CudnnPartBytes(DType dtype, AttentionPass pass, int64_t sequences,
                              const AttentionDims& dims) {
  const int64_t tokens = sequences * dims.sequence, size = int64_t(SizeOf(dtype));
  if (pass == AttentionPass::kBackward) return tokens * PackedWidth(dims) * size;
  return tokens * (dims.out_columns() * size + dims.heads * int64_t{sizeof(float)});
}

}  // namespace trainyard
