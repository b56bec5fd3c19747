#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/attention_by_parts.h"
#include "kernels/cuda/attention/attention_sinks.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"

namespace trainyard::cuda {
namespace {

// Memory for the results of one part, of each direction, as it is planned. It is not the scratch
// memory of the stream, which the kernel that computes the part may use.
template <AttentionPass pass>
struct PartMemory {
  Context own;
};

template <AttentionPass pass, typename T>
T* MemoryOf(Exec& exec, int64_t sequences, const AttentionDims& dims) {
  const int64_t bytes = CudnnPartBytes(DTypeOf<T>::value, pass, sequences, dims);
  return reinterpret_cast<T*>(Kept<PartMemory<pass>>(exec).own.Scratch(size_t(bytes)));
}

// The part by its rows alone: `mask` counts from the first of them.
AttentionPart ByRows(AttentionPart part, const AttentionMask& mask) {
  part.mask = mask;
  part.q_position = part.kv_position = 0;
  return part;
}

// Merges one head of one query.
template <typename T>
struct MergeBody {
  using A = Accumulate<T>;
  AttentionForwardCore<T, A> core;
  Heads<const T> part;
  const A* part_lse;

  __device__ void operator()(int64_t i) const {
    const int64_t heads = core.dims.heads, width = core.dims.value_dim;
    const int64_t head = i % heads, query = i / heads;
    const int64_t sequence = query / core.part.q_rows;
    const int64_t at = core.part.q_begin + query % core.part.q_rows;
    const int64_t row = sequence * core.dims.sequence + at;
    const int64_t statistic = (sequence * heads + head) * core.dims.sequence + at;
    const A mine = part_lse[statistic];
    A after = core.sinks == nullptr ? mine : LogSum(mine, A(core.sinks[head]));
    A before_factor = 0;
    if (core.write == Write::kAdd) {
      const A before = core.lse[statistic];
      after = LogSum(after, before);
      before_factor = std::exp(before - after);
    }
    const A factor = std::exp(mine - after);
    core.lse[statistic] = after;
    A* const out = core.out.data + row * core.out.row + head * width;
    const T* const of_part = part.data + row * part.row + head * width;
    constexpr int kCount = kPackOf<T>;
    for (int64_t c = 0; c < width; c += kCount) {
      const auto values = LoadPack<T, kCount>(of_part + c);
      Pack<A, kCount> sums = {};
      if (core.write == Write::kAdd) sums = LoadPack<A, kCount>(out + c);
      for (int n = 0; n < kCount; ++n) {
        sums.v[n] = before_factor * sums.v[n] + factor * A(values.v[n]);
      }
      StorePack(out + c, sums);
    }
  }

 private:
  // log(exp(x) + exp(y)). One of them may be minus infinity.
  static __device__ A LogSum(A x, A y) {
    const A larger = x < y ? y : x, smaller = x < y ? x : y;
    return larger + std::log1p(std::exp(smaller - larger));
  }
};

// Rows [begin, begin + rows) of each of `sequences` sequences of `sequence` rows, with `columns`
// elements.
struct RowsOfPart {
  int64_t sequences, sequence, begin, rows, columns;

  __device__ int64_t row(int64_t i) const {
    const int64_t n = i / columns;
    return n / rows * sequence + begin + n % rows;
  }
};

// Adds a pack of the part's gradients, or puts it in place.
template <typename T, typename A>
struct AddBody {
  static constexpr int kCount = kPackOf<T>;
  RowsOfPart rows;
  Heads<const T> part;
  Heads<A> to;
  Write write;

  __device__ void operator()(int64_t pack) const {
    const int64_t i = pack * kCount, row = rows.row(i), column = i % rows.columns;
    const auto values = LoadPack<T, kCount>(part.data + row * part.row + column);
    A* const at = to.data + row * to.row + column;
    Pack<A, kCount> sums = {};
    if (write == Write::kAdd) sums = LoadPack<A, kCount>(at);
    for (int n = 0; n < kCount; ++n) sums.v[n] += A(values.v[n]);
    StorePack(at, sums);
  }
};

template <typename T, typename A>
void Add(Exec& exec, const RowsOfPart& rows, const Heads<T>& part, const Heads<A>& to,
         Write write) {
  CHECK(CanPack<T>(rows.columns, part.data, to.data) && CanPack<T>(to.row))
      << "gradients of a part: rows of " << rows.columns << " in rows of " << to.row;
  ForEach(exec, rows.sequences * rows.rows * rows.columns / kPackOf<T>,
          AddBody<T, A>{rows, {part.data, part.row}, to, write});
}

}  // namespace

template <typename T>
bool AttentionByParts(Exec& exec, const AttentionForwardCore<T, Accumulate<T>>& core,
                      const AttentionMask& mask, ForwardPart<T> attention) {
  using A = Accumulate<T>;
  const AttentionDims& dims = core.dims;
  const int64_t rows = core.sequences * dims.sequence, width = dims.out_columns();
  T* const out = MemoryOf<AttentionPass::kForward, T>(exec, core.sequences, dims);
  A* const lse = reinterpret_cast<A*>(out + rows * width);
  const AttentionForwardCore<T, T> part = {.sequences = core.sequences,
                                           .dims = dims,
                                           .part = ByRows(core.part, mask),
                                           .q = core.q,
                                           .k = core.k,
                                           .v = core.v,
                                           .sinks = nullptr,
                                           .documents = core.documents,
                                           .dropout = core.dropout,
                                           .out = {out, width},
                                           .lse = lse,
                                           .write = Write::kOverwrite};
  CHECK(CanPack<T>(dims.value_dim, part.out.data, core.out.data) && CanPack<T>(core.out.row))
      << "a part of heads of " << dims.value_dim << " in rows of " << core.out.row;
  if (!attention(exec, part)) return false;
  ForEach(exec, core.sequences * core.part.q_rows * dims.heads,
          MergeBody<T>{core, {part.out.data, part.out.row}, lse});
  return true;
}

template <typename T>
bool AttentionByParts(Exec& exec, const AttentionBackwardCore<T, Accumulate<T>>& core,
                      const AttentionMask& mask, BackwardPart<T> attention) {
  const AttentionDims& dims = core.dims;
  const AttentionPart& rows = core.part;
  const int64_t q = dims.query_columns(), k = dims.key_columns(), v = dims.value_columns();
  const int64_t tokens = core.sequences * dims.sequence;
  T* const dq = MemoryOf<AttentionPass::kBackward, T>(exec, core.sequences, dims);
  T* const dkv = dq + tokens * q;
  const AttentionBackwardCore<T, T> part = {.sequences = core.sequences,
                                            .dims = dims,
                                            .part = ByRows(rows, mask),
                                            .q = core.q,
                                            .k = core.k,
                                            .v = core.v,
                                            .out = core.out,
                                            .dout = core.dout,
                                            .sinks = nullptr,
                                            .documents = core.documents,
                                            .dropout = core.dropout,
                                            .lse = core.lse,
                                            .dq = {dq, q},
                                            .dk = {dkv, k + v},
                                            .dv = {dkv + k, k + v},
                                            .write_dq = Write::kOverwrite,
                                            .write_dkv = Write::kOverwrite,
                                            .dsinks = nullptr,
                                            .write_dsinks = Write::kOverwrite,
                                            .deterministic = core.deterministic};
  if (!attention(exec, part)) return false;
  const auto of = [&](int64_t begin, int64_t count, int64_t columns) {
    return RowsOfPart{core.sequences, dims.sequence, begin, count, columns};
  };
  Add(exec, of(rows.q_begin, rows.q_rows, q), part.dq, core.dq, core.write_dq);
  Add(exec, of(rows.kv_begin, rows.kv_rows, k), part.dk, core.dk, core.write_dkv);
  Add(exec, of(rows.kv_begin, rows.kv_rows, v), part.dv, core.dv, core.write_dkv);
  if (core.dsinks != nullptr) SinkGradient(exec, core);
  return true;
}

template bool AttentionByParts(Exec&, const AttentionForwardCore<float, float>&,
                               const AttentionMask&, ForwardPart<float>);
template bool AttentionByParts(Exec&, const AttentionForwardCore<bf16, float>&,
                               const AttentionMask&, ForwardPart<bf16>);
template bool AttentionByParts(Exec&, const AttentionBackwardCore<float, float>&,
                               const AttentionMask&, BackwardPart<float>);
template bool AttentionByParts(Exec&, const AttentionBackwardCore<bf16, float>&,
                               const AttentionMask&, BackwardPart<bf16>);

}  // namespace trainyard::cuda
