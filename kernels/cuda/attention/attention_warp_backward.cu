// As attention_backward.cu, on the tensor cores. While a tile is used, the next one is copied. See
// attention_warp.h.

#include "kernels/cuda/attention/attention_warp.h"
#include "kernels/cuda/row.h"

namespace trainyard::cuda {
namespace {

// Replaces the product of a query and a key by z p, and the product of dout and a value by ds
// (before scale).
struct WarpScoreGradient {
  struct Query {
    float lse, delta;
  };
  ScoreOf<float> score_of;

  // `factor` is that of dropout.
  __device__ void Compute(bool seen, float factor, const Query& query, float& score,
                          float& dweight) const {
    float slope;
    const float weight = seen ? Exp(score_of(score, slope) - query.lse) : 0.f;
    score = weight * factor;
    dweight = seen ? weight * (dweight * factor - query.delta) * slope : 0.f;
  }
};

// <dout, out> of row r. Two lanes take half a row each; both get the result.
__device__ float DeltaOf(const HeadRows<const bf16>& out, const HeadRows<const bf16>& dout, int r) {
  float sum = 0;
  if (r < out.count) {
    for (int c = int(threadIdx.x) % 2 * 8; c < out.d; c += 16) {
      const auto a = LoadPack<bf16, 8>(out.data + r * out.row + c);
      const auto b = LoadPack<bf16, 8>(dout.data + r * dout.row + c);
      for (int k = 0; k < 8; ++k) sum += float(a.v[k]) * float(b.v[k]);
    }
  }
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// The rows of the tiles that a block walks along: keys of queries, or queries of keys. With more, a
// thread would have too few registers.
constexpr int kWalked = 32;

template <typename O, int kDim>
__global__ void __launch_bounds__(kTensorThreads)
    WarpQueryKernel(AttentionBackwardCore<bf16, O> core, float* deltas) {
  using Rows = SharedRows<kDim>;
  constexpr int kTile = kWalked * Rows::kStride;
  bf16* const queries = DynamicShared<bf16>();
  bf16* const douts = queries + kTensorRows * Rows::kStride;
  bf16* const stages = douts + kTensorRows * Rows::kStride;  // Two, each of keys and values.
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  const int64_t tiles = CeilDiv(part.q_rows, kTensorRows);
  const int64_t n = tiles - 1 - blockIdx.x / (heads * core.sequences);  // The longest first.
  const TilePlace at(heads, core.sequences, n, kTensorRows, part.q_rows);
  const int64_t query = at.sequence * length + part.q_begin + at.first;
  const int64_t key = at.sequence * length + part.kv_begin;
  const int64_t kv_head = at.head / (heads / core.dims.kv_heads);
  const int lane = int(threadIdx.x) % kWarp;
  const int first = int(threadIdx.x) / kWarp * kWarpRows;  // Of this warp.

  const PartSight sight(part, core.documents, at.sequence * length + part.q_begin);
  const Range seen = sight.KeysOf(at.first, at.count);
  const auto queries_of = [&](const Heads<const bf16>& from, int width) {
    return HeadRows<const bf16>{from.data + query * from.row + at.head * width, from.row, at.count,
                                width};
  };
  const auto start = [&](int64_t j, bf16* stage) {
    if (j < seen.end) {
      const int count = int(part.kv_rows - j < kWalked ? part.kv_rows - j : kWalked);
      const auto rows = [&](const Heads<const bf16>& from, int width) {
        return HeadRows<const bf16>{from.data + (key + j) * from.row + kv_head * width, from.row,
                                    count, width};
      };
      Rows::template Start<kWalked>(rows(core.k, d), stage);
      Rows::template Start<kWalked>(rows(core.v, e), stage + kTile);
    }
    EndCopies();  // Empty if there is no such tile, because groups are counted.
  };
  Rows::template Start<kTensorRows>(queries_of(core.q, d), queries);
  Rows::template Start<kTensorRows>(queries_of(core.dout, e), douts);
  int64_t j = seen.begin / kWalked * kWalked;
  start(j, stages);

  // Lane l has the delta of row l / 2 of the warp, until each lane takes those of its own rows.
  const float* const lse = core.lse + at.Statistic(heads, length, part.q_begin);
  const float of_lane =
      DeltaOf(queries_of(core.out, e), queries_of(core.dout, e), first + lane / 2);
  if (lane % 2 == 0 && first + lane / 2 < at.count) {
    deltas[at.Statistic(heads, part.q_rows, 0) + first + lane / 2] = of_lane;
  }
  WarpSums<kDim> dqueries;
  WarpScoreGradient::Query of_row[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = dqueries.Row(2 * half);
    of_row[half].lse = first + r < at.count ? lse[first + r] : 0.f;
    of_row[half].delta = __shfl_sync(kAllLanes, of_lane, 2 * r);
  }

  const WarpScoreGradient gradient = {{float(core.dims.scale), float(core.dims.soft_cap)}};
  const HeadDropout head_dropout(core.dropout, query, at.head);
  for (int stage = 0; j < seen.end; j += kWalked, stage ^= 1) {
    start(j + kWalked, stages + (stage ^ 1) * 2 * kTile);
    AwaitCopies<1>();
    __syncthreads();
    const bf16* const keys = stages + stage * 2 * kTile;
    WarpSums<kWalked> scores, dscores;
    scores.template AddDots<kDim>(queries + first * Rows::kStride, keys, d);
    dscores.template AddDots<kDim>(douts + first * Rows::kStride, keys + kTile, e);
    const Sight tile_sight(sight, at.first, at.count, j);
    const TileDropout dropout(head_dropout, part, at.first, j);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first + scores.Row(2 * half);
      const SeenKeys sees(tile_sight, r);
#pragma unroll
      for (int m = 0; m < kWalked / 8; ++m) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int c = scores.Column(m, i);
          gradient.Compute(sees(c), dropout.Factor<float>(r, c), of_row[half], scores.v[m][i],
                           dscores.v[m][i]);
        }
      }
    }
    dqueries.AddMix(dscores, keys, d);
    __syncthreads();  // Before the next copies to this stage.
  }
  AwaitCopies<0>();
  O* const dq = core.dq.data + (query + first) * core.dq.row + at.head * d;
  dqueries.template Store<O>(float(core.dims.scale), core.write_dq,
                             {dq, core.dq.row, at.count - first, d});
}

// The gradients that a call of KeyKernel computes. A thread has registers for both if heads are
// small.
enum class Wanted : uint8_t { kBoth, kKeys, kValues };

// A tile of queries of one head.
struct QueryTile {
  int64_t head, first;
};

template <typename O, int kDim, Wanted kWanted>
__global__ void __launch_bounds__(kTensorThreads)
    WarpKeyKernel(AttentionBackwardCore<bf16, O> core, const float* deltas) {
  using Rows = SharedRows<kDim>;
  constexpr bool kWantsKeys = kWanted != Wanted::kValues, kWantsValues = kWanted != Wanted::kKeys;
  constexpr int kTile = kWalked * Rows::kStride;
  bf16* const keys = DynamicShared<bf16>();
  bf16* const values = keys + kTensorRows * Rows::kStride;
  bf16* const stages = values + kTensorRows * Rows::kStride;  // Two, each of queries and douts.
  __shared__ float stage_lse[2][kWalked], stage_delta[2][kWalked];
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const int64_t kv_heads = core.dims.kv_heads, group = heads / kv_heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  // The longest come first: most queries see the first keys.
  const int64_t n = blockIdx.x / (kv_heads * core.sequences);
  const TilePlace at(kv_heads, core.sequences, n, kTensorRows, part.kv_rows);
  const int64_t key = at.sequence * length + part.kv_begin + at.first;
  const int64_t query = at.sequence * length + part.q_begin;
  const int first = int(threadIdx.x) / kWarp * kWarpRows;  // Of this warp.
  const auto keys_of = [&](const Heads<const bf16>& from, int width) {
    return HeadRows<const bf16>{from.data + key * from.row + at.head * width, from.row, at.count,
                                width};
  };

  const PartSight sight(part, core.documents, query);
  const Range seeing = sight.QueriesOf(at.first, at.count);
  const int64_t end_head = (at.head + 1) * group;
  const auto count_of = [&](const QueryTile& tile) {
    const int64_t left = part.q_rows - tile.first;
    return int(left < kWalked ? left : kWalked);
  };
  // The tile, or the next one of which some queries see some of the keys.
  const auto seeing_tile = [&](QueryTile tile) {
    for (; tile.head < end_head; ++tile.head, tile.first = seeing.begin) {
      for (; tile.first < seeing.end; tile.first += kWalked) {
        const Range seen = sight.KeysOf(tile.first, count_of(tile));
        if (seen.begin < at.first + at.count && seen.end > at.first) return tile;
      }
    }
    return tile;
  };
  const auto start = [&](const QueryTile& tile, int stage) {
    if (tile.head < end_head) {
      const int count = count_of(tile);
      const auto rows = [&](const Heads<const bf16>& from, int width) {
        return HeadRows<const bf16>{from.data + (query + tile.first) * from.row + tile.head * width,
                                    from.row, count, width};
      };
      bf16* const to = stages + stage * 2 * kTile;
      Rows::template Start<kWalked>(rows(core.q, d), to);
      Rows::template Start<kWalked>(rows(core.dout, e), to + kTile);
      const int64_t row = at.sequence * heads + tile.head;
      for (int i = int(threadIdx.x); i < kWalked; i += kTensorThreads) {
        const bool there = i < count;
        stage_lse[stage][i] = there ? core.lse[row * length + part.q_begin + tile.first + i] : 0.f;
        stage_delta[stage][i] = there ? deltas[row * part.q_rows + tile.first + i] : 0.f;
      }
    }
    EndCopies();  // Empty if there is no such tile, because groups are counted.
  };
  Rows::template Start<kTensorRows>(keys_of(core.k, d), keys);
  Rows::template Start<kTensorRows>(keys_of(core.v, e), values);
  QueryTile next = seeing_tile({at.head * group, seeing.begin});
  start(next, 0);

  WarpSums<kWantsKeys ? kDim : 8> dkeys;
  WarpSums<kWantsValues ? kDim : 8> dvalues;
  const WarpScoreGradient gradient = {{float(core.dims.scale), float(core.dims.soft_cap)}};
  for (int stage = 0; next.head < end_head; stage ^= 1) {
    const QueryTile tile = next;
    next = seeing_tile({tile.head, tile.first + kWalked});
    start(next, stage ^ 1);
    AwaitCopies<1>();
    __syncthreads();
    const bf16* const queries = stages + stage * 2 * kTile;
    const bf16* const douts = queries + kTile;
    WarpSums<kWalked> scores, dscores;  // Transposed: a row for each key.
    scores.template AddDots<kDim>(keys + first * Rows::kStride, queries, d);
    if constexpr (kWantsKeys) {
      dscores.template AddDots<kDim>(values + first * Rows::kStride, douts, e);
    }
    const Sight tile_sight(sight, tile.first, count_of(tile), at.first);
    const HeadDropout head_dropout(core.dropout, query, tile.head);
    const TileDropout dropout(head_dropout, part, tile.first, at.first);
#pragma unroll
    for (int m = 0; m < kWalked / 8; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int r = scores.Column(m, k);
        const SeenKeys sees(tile_sight, r);
        const WarpScoreGradient::Query query_row = {stage_lse[stage][r], stage_delta[stage][r]};
#pragma unroll
        for (int i = k; i < 4; i += 2) {
          const int c = first + scores.Row(i);
          gradient.Compute(sees(c), dropout.Factor<float>(r, c), query_row, scores.v[m][i],
                           dscores.v[m][i]);
        }
      }
    }
    if constexpr (kWantsValues) dvalues.AddMix(scores, douts, e);
    if constexpr (kWantsKeys) dkeys.AddMix(dscores, queries, d);
    __syncthreads();  // Before the next copies to this stage.
  }
  AwaitCopies<0>();
  const auto store = [&](const auto& sums, float factor, const Heads<O>& to, int width) {
    O* const place = to.data + (key + first) * to.row + at.head * width;
    sums.template Store<O>(factor, core.write_dkv, {place, to.row, at.count - first, width});
  };
  if constexpr (kWantsKeys) store(dkeys, float(core.dims.scale), core.dk, d);
  if constexpr (kWantsValues) store(dvalues, 1.f, core.dv, e);
}

template <typename O, int kDim>
void LaunchKernels(Exec& exec, const AttentionBackwardCore<bf16, O>& core, float* deltas) {
  // `rows`: of the tiles in shared memory.
  const auto grid = [&](int64_t blocks_rows, int64_t heads, int rows) {
    return Grid{.blocks = CeilDiv(blocks_rows, kTensorRows) * heads * core.sequences,
                .threads = kTensorThreads,
                .shared = size_t(rows) * SharedRows<kDim>::kStride * sizeof(bf16)};
  };
  Launch(exec, grid(core.part.q_rows, core.dims.heads, 2 * kTensorRows + 4 * kWalked),
         WarpQueryKernel<O, kDim>, core, deltas);
  const Grid keys = grid(core.part.kv_rows, core.dims.kv_heads, 2 * kTensorRows + 4 * kWalked);
  if constexpr (kDim <= 128) {
    Launch(exec, keys, WarpKeyKernel<O, kDim, Wanted::kBoth>, core, deltas);
  } else {
    Launch(exec, keys, WarpKeyKernel<O, kDim, Wanted::kKeys>, core, deltas);
    Launch(exec, keys, WarpKeyKernel<O, kDim, Wanted::kValues>, core, deltas);
  }
}

}  // namespace

template <typename O>
bool RunOnTensorCores(Exec& exec, const AttentionBackwardCore<bf16, O>& core, float* deltas) {
  if (!TensorCoresTake(core)) return false;
  DispatchHeadDim(core.dims, [&](auto dim) { LaunchKernels<O, dim>(exec, core, deltas); });
  return true;
}

template bool RunOnTensorCores(Exec&, const AttentionBackwardCore<bf16, bf16>&, float*);
template bool RunOnTensorCores(Exec&, const AttentionBackwardCore<bf16, float>&, float*);

}  // namespace trainyard::cuda
