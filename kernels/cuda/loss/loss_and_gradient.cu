// Bound by memory: each logit is read once, and its gradient is written once. A block takes a row,
// keeps the row in shared memory while it computes the statistics, and then writes the gradient. If
// the row is longer than shared memory, the rest is read again, mostly from the L2 cache.

#include <algorithm>

#include "kernels/cuda/loss/loss_and_gradient.h"
#include "kernels/cuda/rows.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 1024;  // Of a multiprocessor.

// Writes statistics and the gradient. A thread reads again only what it has kept itself, and what
// no other thread has written, so that only the statistics need barriers.
template <int kCount, typename L>
__global__ void __launch_bounds__(kThreads) LossKernel(Loss<L> args) {
  using A = Accumulate<L>;
  constexpr int kAhead = kAheadOf<L>;
  L* const kept = DynamicShared<L>();
  const Targets& targets = args.targets;
  const int held = int(targets.held), columns = int(targets.columns);
  const int whole = held / kCount * kCount;
  const int first = int(threadIdx.x) * kCount, stride = int(blockDim.x) * kCount;
  const A scale = A(args.state->loss_scale);
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    if (threadIdx.x == 0) targets.Check(t);
    const L* const row = args.logits + t * columns;
    L* const out = args.dlogits + t * columns;
    A* const statistics = args.statistics + t * 3;
    const int target = targets.ids[t];
    if (target < 0) {
      for (int v = first; v < columns; v += stride) StoreRow(out + v, Pack<L, kCount>{});
      if (threadIdx.x == 0) statistics[0] = 0, statistics[1] = 1, statistics[2] = 0;
      continue;
    }
    const auto keep = [&](int v, const RowPack<L, kCount>& pack) {
      if (v < args.kept) pack.Save(kept, v, 0);
    };
    const Softmax<L> mine = SoftmaxOf<kCount>(row, held, keep);
    const A target_logit = target < held ? A(row[target]) : A(0);  // Not so: Check fails.
    // One of the columns after the last whole pack: fewer than a pack are held, and the others are
    // padding.
    const int tail = whole + int(threadIdx.x);
    const A tail_logit = tail < held ? A(row[tail]) : A(0);
    RowPack<L, kCount> rest[kAhead];
    const auto load_rest = [&](int begin) {
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (begin + first + k * stride < whole) rest[k].Load(row, begin + first + k * stride, 0);
      }
    };
    load_rest(args.kept);  // Under way until what is kept has been used.
    __syncthreads();       // The gradient may take the place of what all have read.
    const Softmax<L> all = mine.OfBlock();
    const A lse = all.largest + std::log(all.sum);
    if (threadIdx.x == 0) {
      statistics[0] = all.largest, statistics[1] = all.sum, statistics[2] = target_logit;
    }
    const auto write = [&](int v, const RowPack<L, kCount>& pack) {
      Pack<L, kCount> dlogits;
      for (int n = 0; n < kCount; ++n) {
        dlogits.v[n] = L(scale * ExpOf<L>(pack.at(0, n) - lse));
      }
      StoreRow(out + v, dlogits);
    };
    for (int v = first; v < std::min(args.kept, whole); v += stride) {
      RowPack<L, kCount> pack;
      pack.Load(kept, v, 0);
      write(v, pack);
    }
    for (int begin = args.kept; begin < whole; begin += kAhead * stride) {
      if (begin > args.kept) load_rest(begin);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (begin + first + k * stride < whole) write(begin + first + k * stride, rest[k]);
      }
    }
    if (tail < held) out[tail] = L(scale * ExpOf<L>(tail_logit - lse));
    for (int v = tail < held ? tail + int(blockDim.x) : tail; v < columns; v += int(blockDim.x)) {
      out[v] = L(A(0));
    }
    // By the thread that has just written the target's probability.
    const int in_kept = target < args.kept ? target : target - args.kept;
    const int writer = target < whole ? in_kept / kCount % int(blockDim.x) : target - whole;
    if (int(threadIdx.x) == writer && target < held) {
      out[target] = L(scale * (ExpOf<L>(target_logit - lse) - A(1)));
    }
  }
}

}  // namespace

// A multiprocessor has 228 KiB of shared memory, of which each block takes 1 KiB beside its own.
template <typename L>
void LossAndGradient(Exec& exec, Loss<L> args) {
  constexpr int64_t kAll = 228 << 10, kOfBlock = 2 << 10, kMostBlocks = 4;
  const int64_t columns = args.targets.columns, bytes = columns * int64_t(sizeof(L));
  const bool packed = CanPack<L>(columns, args.logits, args.dlogits);
  const int64_t blocks = std::clamp<int64_t>(kAll / (bytes + kOfBlock), 1, kMostBlocks);
  args.kept = packed ? int(std::min(columns, (kAll - kOfBlock) / int64_t(sizeof(L)))) : 0;
  const int64_t packs = packed ? columns / kPackOf<L> : columns;
  // Long rows are walked by as many blocks as fit, so that a row begins where another one ends.
  const int64_t rows_at_once = kMultiprocessors * (blocks < kMostBlocks ? blocks : 64);
  const Grid grid = {.blocks = std::min(args.rows, rows_at_once),
                     .threads = RowThreads(packs, int(kThreads / blocks / kWarp) * kWarp),
                     .shared = size_t(args.kept) * sizeof(L)};
  Launch(exec, grid, packed ? LossKernel<kPackOf<L>, L> : LossKernel<1, L>, args);
}

template void LossAndGradient(Exec&, Loss<float>);
template void LossAndGradient(Exec&, Loss<bf16>);

}  // namespace trainyard::cuda
