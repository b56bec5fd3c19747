// A block computes a tile of queries. It walks along the keys that the queries see, one tile at a
// time, and updates the largest score, the sum of the exponentials and their mixture of values. See
// attention_tile.h. For bf16, the kernels of attention_warp.h are faster, where they can run.

#include <limits>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_warp.h"

namespace trainyard::cuda {
namespace {

// The softmax of a thread's rows over all keys so far. `total` is the sum over the thread's own
// columns; the threads of a row add their sums at the end.
template <typename A, int kDim>
struct Softmax {
  using T = Tile<A, kDim>;
  A largest[T::kOwnRows];
  A total[T::kOwnRows];
  typename T::Sums sums;

  // Starts with the sink, if there is one.
  template <typename S>
  __device__ explicit Softmax(const S* sink) : sums{} {
    for (A& x : largest) x = sink == nullptr ? -std::numeric_limits<A>::infinity() : A(*sink);
    for (A& x : total) x = sink != nullptr && TileX() == 0 ? A(1) : A(0);
  }

  // Adds another tile of keys, and writes its weights to shared memory.
  __device__ void Update(typename T::Scores& scores, const ScoreOf<A>& score_of, const Sight& sees,
                         const TileDropout& dropout, A* weights) {
#pragma unroll
    for (int i = 0; i < T::kOwnRows; ++i) {
      const int r = TileY() + kSide * i;
      A most = largest[i];
#pragma unroll
      for (int j = 0; j < T::kOwnRows; ++j) {
        A& score = scores[i][j];
        A slope;
        score = sees(r, TileX() + kSide * j) ? score_of(score, slope)
                                             : -std::numeric_limits<A>::infinity();
        most = Max()(most, score);
      }
      most = RowReduce(most, Max());
      // If a query has seen nothing so far, -infinity - -infinity would be NaN.
      const A base = most == -std::numeric_limits<A>::infinity() ? A(0) : most;
      const A shrink = std::exp(largest[i] - base);
      A sum = 0;
#pragma unroll
      for (int j = 0; j < T::kOwnRows; ++j) {
        const A weight = std::exp(scores[i][j] - base);
        const int c = TileX() + kSide * j;
        weights[r * T::kSquareStride + c] = weight * dropout.Factor<A>(r, c);
        sum += weight;
      }
      largest[i] = most;
      total[i] = total[i] * shrink + sum;
#pragma unroll
      for (int j = 0; j < T::kOwnColumns; ++j) sums[i][j] *= shrink;
    }
  }

  // Writes rows of out and lse. Merges with the previous content if `write` adds.
  template <typename O>
  __device__ void Finish(Write write, const HeadRows<O>& out, A* lse) const {
#pragma unroll
    for (int i = 0; i < T::kOwnRows; ++i) {
      const int r = TileY() + kSide * i;
      const bool there = r < out.count;
      const A sum = RowReduce(total[i], Sum());
      const bool empty = sum == 0;  // It sees no key, and has no sink.
      const A mine = largest[i] + std::log(sum);
      A keep = 0, take = empty ? A(0) : 1 / sum, merged = mine;
      if (there && write == Write::kAdd && empty) {
        keep = 1;
        merged = lse[r];
      } else if (there && write == Write::kAdd) {
        const A before = lse[r], more = Max()(before, mine);
        merged = more + std::log(std::exp(before - more) + std::exp(mine - more));
        keep = std::exp(before - merged);
        take *= std::exp(mine - merged);
      }
      __syncwarp();  // All have read what the first lane is about to write.
      if (!there) continue;
      if (TileX() == 0) lse[r] = merged;
#pragma unroll
      for (int j = 0; j < T::kOwnColumns; ++j) {
        const int c = TileX() + kSide * j;
        if (c >= out.d) continue;
        O& value = out.data[r * out.row + c];
        const A before = write == Write::kAdd ? A(value) * keep : A(0);
        value = O(before + sums[i][j] * take);
      }
    }
  }
};

template <typename T, typename O, int kDim>
__global__ void __launch_bounds__(kTileThreads, 1) ForwardKernel(AttentionForwardCore<T, O> core) {
  using A = Accumulate<T>;
  using Rows = Tile<A, kDim>;
  A* const queries = DynamicShared<A>();
  A* const others = queries + Rows::kElements;  // Keys, then values.
  A* const weights = others + Rows::kElements;
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  // The longest first: they see the most keys.
  const int64_t tiles = CeilDiv(part.q_rows, Rows::kRows);
  const int64_t n = tiles - 1 - blockIdx.x / (heads * core.sequences);
  const TilePlace at(heads, core.sequences, n, Rows::kRows, part.q_rows);
  const int64_t query = at.sequence * length + part.q_begin + at.first;
  const int64_t key = at.sequence * part.KeyRows(length) + part.kv_begin;
  const int64_t kv_head = at.head / (heads / core.dims.kv_heads);
  Rows::template Load<T>({core.q.data + query * core.q.row + at.head * d, core.q.row, at.count, d},
                         queries);

  Softmax<A, kDim> softmax(core.sinks == nullptr ? nullptr : core.sinks + at.head);
  const ScoreOf<A> score_of = {A(core.dims.scale), A(core.dims.soft_cap)};
  const HeadDropout dropout(core.dropout, query, at.head);
  const PartSight sight(part, core.documents, at.sequence * length + part.q_begin);
  const Range keys = sight.KeysOf(at.first, at.count);
  for (int64_t j = keys.begin / Rows::kRows * Rows::kRows; j < keys.end; j += Rows::kRows) {
    const Sight sees(sight, at.first, at.count, j);
    const auto load = [&](const Heads<const T>& from, int width) {
      __syncthreads();  // All have read the previous tile.
      Rows::template Load<T>(
          {from.data + (key + j) * from.row + kv_head * width, from.row, sees.keys, width}, others);
      __syncthreads();
    };
    load(core.k, d);
    typename Rows::Scores scores;
    Rows::Dots(queries, others, d, scores);
    softmax.Update(scores, score_of, sees, TileDropout(dropout, part, at.first, j), weights);
    load(core.v, e);
    Rows::template Mix<false>(weights, others, sees.keys, softmax.sums);
  }
  O* const out = core.out.data + query * core.out.row + at.head * e;
  softmax.template Finish<O>(core.write, {out, core.out.row, at.count, e},
                             core.lse + at.Statistic(heads, length, part.q_begin));
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (RunOnTensorCores(exec, core)) return;
  }
  DispatchHeadDim(core.dims, [&](auto dim) {
    using Rows = Tile<Accumulate<T>, dim>;
    const int64_t tiles = CeilDiv(core.part.q_rows, Rows::kRows);
    const size_t elements = 2 * Rows::kElements + Rows::kSquare;
    Launch(exec,
           {.blocks = tiles * core.dims.heads * core.sequences,
            .threads = kTileThreads,
            .shared = elements * sizeof(Accumulate<T>)},
           ForwardKernel<T, O, dim>, core);
  });
}

template void Run(Exec&, const AttentionForwardCore<double, double>&);
template void Run(Exec&, const AttentionForwardCore<float, float>&);
template void Run(Exec&, const AttentionForwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionForwardCore<bf16, float>&);

}  // namespace trainyard::cuda
