// Two kernels, so that no sum depends on an order of blocks. One computes the gradient of a tile of
// queries from all keys that they see. The other computes the gradients of a tile of keys and
// values from all queries that see them. Both compute the scores again. See attention_tile.h. For
// bf16, the kernels of attention_warp.h are faster, where they can run.

#include "kernels/cuda/attention/attention_sinks.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_warp.h"
#include "kernels/cuda/context.h"

namespace trainyard::cuda {
namespace {

// The statistics of a tile of `count` queries.
template <typename A>
struct Statistics {
  const A* lse;
  const A* delta;
  int count;
};

// Computes z p and ds (before scale) for a thread's rows and keys, from the products of queries
// with keys and of dout with values, and writes them to shared memory. Where a query does not see a
// key, both are zero.
template <typename A, int kDim>
struct ScoreGradient {
  using T = Tile<A, kDim>;
  const A* queries;
  const A* douts;
  const A* keys;
  const A* values;
  int d, e;
  ScoreOf<A> score_of;

  // `weights` may be null.
  __device__ void Compute(const Sight& sees, const TileDropout& dropout, const Statistics<A>& of,
                          A* weights, A* dscores) const {
    typename T::Scores scores, dweights;
    T::Dots(queries, keys, d, scores);
    T::Dots(douts, values, e, dweights);
#pragma unroll
    for (int i = 0; i < T::kOwnRows; ++i) {
      const int r = TileY() + kSide * i;
#pragma unroll
      for (int j = 0; j < T::kOwnRows; ++j) {
        const int c = TileX() + kSide * j;
        const bool seen = r < of.count && sees(r, c);
        A slope;
        const A score = score_of(scores[i][j], slope);
        const A weight = seen ? std::exp(score - of.lse[r]) : A(0);
        const A factor = dropout.Factor<A>(r, c);
        if (weights != nullptr) weights[r * T::kSquareStride + c] = weight * factor;
        dscores[r * T::kSquareStride + c] =
            seen ? weight * (dweights[i][j] * factor - of.delta[r]) * slope : A(0);
      }
    }
  }
};

template <typename T, typename O, int kDim>
__global__ void __launch_bounds__(kTileThreads, 1)
    QueryKernel(AttentionBackwardCore<T, O> core, Accumulate<T>* deltas) {
  using A = Accumulate<T>;
  using Rows = Tile<A, kDim>;
  A* const queries = DynamicShared<A>();
  A* const douts = queries + Rows::kElements;
  A* const keys = douts + Rows::kElements;
  A* const values = keys + Rows::kElements;
  A* const dscores = values + Rows::kElements;
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const int64_t kv_heads = core.dims.kv_heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  const int64_t tiles = CeilDiv(part.q_rows, Rows::kRows);
  const int64_t n = tiles - 1 - blockIdx.x / (heads * core.sequences);  // The longest first.
  const TilePlace at(heads, core.sequences, n, Rows::kRows, part.q_rows);
  const int64_t query = at.sequence * length + part.q_begin + at.first;
  const int64_t key = at.sequence * length + part.kv_begin;
  const int64_t kv_head = at.head / (heads / kv_heads);
  const auto load = [&](const Heads<const T>& from, int width, A* to) {
    Rows::template Load<T>(
        {from.data + query * from.row + at.head * width, from.row, at.count, width}, to);
  };
  load(core.q, d, queries);
  load(core.dout, e, douts);
  load(core.out, e, keys);
  __syncthreads();
  const A* const lse = core.lse + at.Statistic(heads, length, part.q_begin);
  A* const delta = deltas + at.Statistic(heads, part.q_rows, 0);
  for (int r = TileY(); r < Rows::kRows; r += kSide) {
    A sum = 0;
    for (int c = TileX(); c < e; c += kSide) {
      sum += douts[r * Rows::kStride + c] * keys[r * Rows::kStride + c];
    }
    sum = RowReduce(sum, Sum());
    if (TileX() == 0 && r < at.count) delta[r] = sum;
  }

  typename Rows::Sums dqueries = {};
  const ScoreGradient<A, kDim> gradient = {
      queries, douts, keys, values, d, e, {A(core.dims.scale), A(core.dims.soft_cap)}};
  const HeadDropout dropout(core.dropout, query, at.head);
  const PartSight sight(part, core.documents, at.sequence * length + part.q_begin);
  const Range seen = sight.KeysOf(at.first, at.count);
  for (int64_t j = seen.begin / Rows::kRows * Rows::kRows; j < seen.end; j += Rows::kRows) {
    const Sight sees(sight, at.first, at.count, j);
    __syncthreads();  // All have read the previous tiles and `out`, and deltas are there.
    const auto load_keys = [&](const Heads<const T>& from, int width, A* to) {
      Rows::template Load<T>(
          {from.data + (key + j) * from.row + kv_head * width, from.row, sees.keys, width}, to);
    };
    load_keys(core.k, d, keys);
    load_keys(core.v, e, values);
    __syncthreads();
    gradient.Compute(sees, TileDropout(dropout, part, at.first, j), {lse, delta, at.count}, nullptr,
                     dscores);
    __syncthreads();
    Rows::template Mix<false>(dscores, keys, sees.keys, dqueries);
  }
  O* const dq = core.dq.data + query * core.dq.row + at.head * d;
  Rows::template Store<O>(dqueries, A(core.dims.scale), core.write_dq,
                          {dq, core.dq.row, at.count, d});
}

template <typename T, typename O, int kDim>
__global__ void __launch_bounds__(kTileThreads, 1)
    KeyKernel(AttentionBackwardCore<T, O> core, const Accumulate<T>* deltas) {
  using A = Accumulate<T>;
  using Rows = Tile<A, kDim>;
  A* const queries = DynamicShared<A>();
  A* const douts = queries + Rows::kElements;
  A* const keys = douts + Rows::kElements;
  A* const values = keys + Rows::kElements;
  A* const weights = values + Rows::kElements;
  A* const dscores = weights + Rows::kSquare;
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const int64_t kv_heads = core.dims.kv_heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  // The longest come first: most queries see the first keys.
  const int64_t n = blockIdx.x / (kv_heads * core.sequences);
  const TilePlace at(kv_heads, core.sequences, n, Rows::kRows, part.kv_rows);
  const int64_t key = at.sequence * length + part.kv_begin + at.first;
  const int64_t query = at.sequence * length + part.q_begin;
  const auto load_keys = [&](const Heads<const T>& from, int width, A* to) {
    Rows::template Load<T>(
        {from.data + key * from.row + at.head * width, from.row, at.count, width}, to);
  };
  load_keys(core.k, d, keys);
  load_keys(core.v, e, values);

  typename Rows::Sums dkeys = {}, dvalues = {};
  const ScoreGradient<A, kDim> gradient = {
      queries, douts, keys, values, d, e, {A(core.dims.scale), A(core.dims.soft_cap)}};
  const PartSight sight(part, core.documents, query);
  const Range seeing = sight.QueriesOf(at.first, at.count);
  const int64_t group = heads / kv_heads;
  for (int64_t head = at.head * group; head < (at.head + 1) * group; ++head) {
    const A* const lse = core.lse + (at.sequence * heads + head) * length + part.q_begin;
    const A* const delta = deltas + (at.sequence * heads + head) * part.q_rows;
    const HeadDropout dropout(core.dropout, query, head);
    for (int64_t i = seeing.begin; i < seeing.end; i += Rows::kRows) {
      const int count = int(part.q_rows - i < Rows::kRows ? part.q_rows - i : Rows::kRows);
      const Range seen = sight.KeysOf(i, count);
      if (seen.begin >= at.first + at.count || seen.end <= at.first) continue;  // Other documents.
      __syncthreads();  // All have read the previous tiles.
      const auto load = [&](const Heads<const T>& from, int width, A* to) {
        Rows::template Load<T>(
            {from.data + (query + i) * from.row + head * width, from.row, count, width}, to);
      };
      load(core.q, d, queries);
      load(core.dout, e, douts);
      __syncthreads();
      gradient.Compute(Sight(sight, i, count, at.first), TileDropout(dropout, part, i, at.first),
                       {lse + i, delta + i, count}, weights, dscores);
      __syncthreads();
      Rows::template Mix<true>(weights, douts, count, dvalues);
      Rows::template Mix<true>(dscores, queries, count, dkeys);
    }
  }
  const auto store = [&](const typename Rows::Sums& sums, A factor, const Heads<O>& to, int width) {
    Rows::template Store<O>(sums, factor, core.write_dkv,
                            {to.data + key * to.row + at.head * width, to.row, at.count, width});
  };
  store(dkeys, A(core.dims.scale), core.dk, d);
  store(dvalues, A(1), core.dv, e);
}

template <typename T, typename O>
void RunTiles(Exec& exec, const AttentionBackwardCore<T, O>& core, Accumulate<T>* deltas) {
  DispatchHeadDim(core.dims, [&](auto dim) {
    using Rows = Tile<Accumulate<T>, dim>;
    const auto grid = [&](int64_t rows, int64_t heads, int squares) {
      const int elements = 4 * Rows::kElements + squares * Rows::kSquare;
      return Grid{.blocks = CeilDiv(rows, Rows::kRows) * heads * core.sequences,
                  .threads = kTileThreads,
                  .shared = size_t(elements) * sizeof(Accumulate<T>)};
    };
    Launch(exec, grid(core.part.q_rows, core.dims.heads, 1), QueryKernel<T, O, dim>, core, deltas);
    Launch(exec, grid(core.part.kv_rows, core.dims.kv_heads, 2), KeyKernel<T, O, dim>, core,
           deltas);
  });
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  auto* const deltas =
      ScratchOf<Accumulate<T>>(exec, core.sequences * core.dims.heads * core.part.q_rows);
  bool done = false;
  if constexpr (std::is_same_v<T, bf16>) done = RunOnTensorCores(exec, core, deltas);
  if (!done) RunTiles(exec, core, deltas);
  if (core.sinks != nullptr) SinkGradient(exec, core, deltas);
}

template void Run(Exec&, const AttentionBackwardCore<double, double>&);
template void Run(Exec&, const AttentionBackwardCore<float, float>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, float>&);

}  // namespace trainyard::cuda
