// As attention_forward.cu, on the tensor cores. While a tile of keys and values is used, the next
// one is copied. See attention_warp.h.

#include <limits>

#include "kernels/cuda/attention/attention_warp.h"
#include "kernels/cuda/row.h"

namespace trainyard::cuda {
namespace {

template <int kDim>
constexpr int kKeys = kDim <= 128 ? 64 : 32;  // Of a tile.

// The softmax of a thread's two rows over all keys so far. `total` is the sum over the thread's own
// columns.
template <int kDim>
struct WarpSoftmax {
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  float largest[2];
  float total[2];
  WarpSums<kDim> sums;

  // Starts with the sink, if there is one.
  __device__ explicit WarpSoftmax(const bf16* sink) {
    for (float& x : largest) x = sink == nullptr ? kNone : float(*sink);
    for (float& x : total) x = sink != nullptr && threadIdx.x % 4 == 0 ? 1.f : 0.f;
  }

  // Replaces the products of queries and keys by the weights of values. `first` is the warp's first
  // query in the tile.
  __device__ void Update(const ScoreOf<float>& score_of, const Sight& sight, int first,
                         const TileDropout& dropout, WarpSums<kKeys<kDim>>& scores) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first + scores.Row(2 * half);
      const SeenKeys sees(sight, r);
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < kKeys<kDim> / 8; ++j) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float slope;
          float& score = scores.v[j][i];
          score = sees(scores.Column(j, i)) ? score_of(score, slope) : kNone;
          most = Max()(most, score);
        }
      }
      most = QuadReduce(most, Max());
      // If a query has seen nothing so far, -infinity - -infinity would be NaN.
      const float base = most == kNone ? 0.f : most;
      const float shrink = Exp(largest[half] - base);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kKeys<kDim> / 8; ++j) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const float weight = Exp(scores.v[j][i] - base);
          scores.v[j][i] = weight * dropout.Factor<float>(r, scores.Column(j, i));
          sum += weight;
        }
      }
      largest[half] = most;
      total[half] = total[half] * shrink + sum;
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        sums.v[j][2 * half] *= shrink;
        sums.v[j][2 * half + 1] *= shrink;
      }
    }
  }

  // Writes the warp's rows of out and lse. Merges with the previous content if `write` adds.
  template <typename O>
  __device__ void Finish(Write write, const HeadRows<O>& out, float* lse) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = sums.Row(2 * half);
      const bool there = r < out.count;
      const float sum = QuadReduce(total[half], Sum());
      const bool empty = sum == 0;  // It sees no key, and has no sink.
      const float mine = largest[half] + std::log(sum);
      float keep = 0, take = empty ? 0.f : 1 / sum, merged = mine;
      if (there && write == Write::kAdd && empty) {
        keep = 1;
        merged = lse[r];
      } else if (there && write == Write::kAdd) {
        const float before = lse[r], more = Max()(before, mine);
        merged = more + std::log(Exp(before - more) + Exp(mine - more));
        keep = Exp(before - merged);
        take *= Exp(mine - merged);
      }
      __syncwarp();  // All have read what the first lane is about to write.
      if (!there) continue;
      if (threadIdx.x % 4 == 0) lse[r] = merged;
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        const int c = sums.Column(j, 0);
        if (c >= out.d) break;
        O* const place = out.data + r * out.row + c;
        Pack<O, 2> pack = {};
        if (write == Write::kAdd) pack = LoadPack<O, 2>(place);
        for (int k = 0; k < 2; ++k) {
          const float before = write == Write::kAdd ? float(pack.v[k]) * keep : 0.f;
          pack.v[k] = O(before + sums.v[j][2 * half + k] * take);
        }
        StoreRow(place, pack);
      }
    }
  }
};

template <typename O, int kDim>
__global__ void __launch_bounds__(kTensorThreads)
    WarpForwardKernel(AttentionForwardCore<bf16, O> core) {
  using Rows = SharedRows<kDim>;
  constexpr int kTile = kKeys<kDim> * Rows::kStride;
  bf16* const queries = DynamicShared<bf16>();
  bf16* const stages = queries + kTensorRows * Rows::kStride;  // Two, each of keys and values.
  const int64_t length = core.dims.sequence, heads = core.dims.heads;
  const AttentionPart& part = core.part;
  const int d = int(core.dims.head_dim), e = int(core.dims.value_dim);
  // The longest first: they see the most keys.
  const int64_t tiles = CeilDiv(part.q_rows, kTensorRows);
  const int64_t n = tiles - 1 - blockIdx.x / (heads * core.sequences);
  const TilePlace at(heads, core.sequences, n, kTensorRows, part.q_rows);
  const int64_t query = at.sequence * length + part.q_begin + at.first;
  const int64_t key = at.sequence * part.KeyRows(length) + part.kv_begin;
  const int64_t kv_head = at.head / (heads / core.dims.kv_heads);
  const int first = int(threadIdx.x) / kWarp * kWarpRows;  // Of this warp.

  const PartSight sight(part, core.documents, at.sequence * length + part.q_begin);
  const Range seen = sight.KeysOf(at.first, at.count);
  const auto start = [&](int64_t j, bf16* stage) {
    if (j < seen.end) {
      const int count = int(part.kv_rows - j < kKeys<kDim> ? part.kv_rows - j : kKeys<kDim>);
      const auto rows = [&](const Heads<const bf16>& from, int width) {
        return HeadRows<const bf16>{from.data + (key + j) * from.row + kv_head * width, from.row,
                                    count, width};
      };
      Rows::template Start<kKeys<kDim>>(rows(core.k, d), stage);
      Rows::template Start<kKeys<kDim>>(rows(core.v, e), stage + kTile);
    }
    EndCopies();  // Empty if there is no such tile, because groups are counted.
  };
  Rows::template Start<kTensorRows>(
      {core.q.data + query * core.q.row + at.head * d, core.q.row, at.count, d}, queries);
  int64_t j = seen.begin / kKeys<kDim> * kKeys<kDim>;
  start(j, stages);

  WarpSoftmax<kDim> softmax(core.sinks == nullptr ? nullptr : core.sinks + at.head);
  const ScoreOf<float> score_of = {float(core.dims.scale), float(core.dims.soft_cap)};
  const HeadDropout dropout(core.dropout, query, at.head);
  for (int stage = 0; j < seen.end; j += kKeys<kDim>, stage ^= 1) {
    start(j + kKeys<kDim>, stages + (stage ^ 1) * 2 * kTile);
    AwaitCopies<1>();
    __syncthreads();
    const bf16* const keys = stages + stage * 2 * kTile;
    WarpSums<kKeys<kDim>> scores;
    scores.template AddDots<kDim>(queries + first * Rows::kStride, keys, d);
    softmax.Update(score_of, Sight(sight, at.first, at.count, j), first,
                   TileDropout(dropout, part, at.first, j), scores);
    softmax.sums.AddMix(scores, keys + kTile, e);
    __syncthreads();  // Before the next copies to this stage.
  }
  AwaitCopies<0>();
  O* const out = core.out.data + (query + first) * core.out.row + at.head * e;
  softmax.template Finish<O>(core.write, {out, core.out.row, at.count - first, e},
                             core.lse + at.Statistic(heads, length, part.q_begin) + first);
}

}  // namespace

template <typename O>
bool RunOnTensorCores(Exec& exec, const AttentionForwardCore<bf16, O>& core) {
  if (!TensorCoresTake(core)) return false;
  DispatchHeadDim(core.dims, [&](auto dim) {
    const int64_t tiles = CeilDiv(core.part.q_rows, kTensorRows);
    const size_t rows = kTensorRows + 4 * kKeys<dim>;
    Launch(exec,
           {.blocks = tiles * core.dims.heads * core.sequences,
            .threads = kTensorThreads,
            .shared = rows * SharedRows<dim>::kStride * sizeof(bf16)},
           WarpForwardKernel<O, dim>, core);
  });
  return true;
}

template bool RunOnTensorCores(Exec&, const AttentionForwardCore<bf16, bf16>&);
template bool RunOnTensorCores(Exec&, const AttentionForwardCore<bf16, float>&);

}  // namespace trainyard::cuda
