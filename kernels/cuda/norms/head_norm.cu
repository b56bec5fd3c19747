// Bound by memory: forward reads and writes each element once, backward reads two elements and
// writes one. A few lanes of a warp share a head, which is short, and then continue with the next
// head of the grid. As in row.h, they hold their packs in registers, or read heads of any width and
// alignment element by element.

#include <cmath>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/norms/head_norm.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostHeld = 2;

// The heads of all rows: in a row the query heads, the key heads, and the values.
struct Heads {
  int64_t rows;
  int64_t width;  // Per head.
  int64_t query, normed, all;
  int lanes;             // Per head: a power of two.
  int64_t sequence = 1;  // Of the rotation.

  __device__ int lane() const { return int(threadIdx.x) % lanes; }
  __device__ SharedRow shared() const { return SharedRow(width, lane(), lanes); }
};

// Walks through the heads of this thread's lanes. All lanes of a warp take the same number of
// steps, the last ones possibly without a head.
class HeadWalk {
 public:
  __device__ explicit HeadWalk(const Heads& heads) : heads_(heads) {
    const int64_t teams = int64_t(gridDim.x) * blockDim.x / heads.lanes;
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    next_ = thread / kWarp * kWarp / heads.lanes;
    step_ = teams;
    const int64_t first = thread / heads.lanes;
    row_ = first / heads.all;
    head_ = first % heads.all;
    row_step_ = teams / heads.all;
    head_step_ = teams % heads.all;
    position_ = row_ % heads.sequence;
    position_step_ = row_step_ % heads.sequence;
  }
  // Whether any lane of this warp has a head.
  __device__ bool more() const { return next_ < heads_.rows * heads_.all; }
  __device__ void Advance() {
    next_ += step_;
    row_ += row_step_;
    position_ += position_step_;
    head_ += head_step_;
    if (head_ >= heads_.all) {
      head_ -= heads_.all;
      ++row_;
      ++position_;
    }
    if (position_ >= heads_.sequence) position_ -= heads_.sequence;
  }
  __device__ bool has_head() const { return row_ < heads_.rows; }
  __device__ bool is_normed() const { return has_head() && head_ < heads_.normed; }
  __device__ bool is_query() const { return head_ < heads_.query; }
  __device__ int64_t element() const { return (row_ * heads_.all + head_) * heads_.width; }
  __device__ int64_t statistic() const { return row_ * heads_.normed + head_; }
  // Of the row, in the tables of the rotation.
  __device__ int64_t position() const { return position_; }

 private:
  const Heads& heads_;
  int64_t next_, step_;  // The warp's first head, and the step.
  int64_t row_, head_, row_step_, head_step_;
  int64_t position_, position_step_;
};

// Sums over the lanes of a head; each lane gets the sum. All lanes of the warp must call it.
template <typename A>
__device__ A HeadSum(const Heads& heads, A x) {
  for (int lanes = heads.lanes / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, lanes);
  }
  return x;
}

// Rotates heads whose dims i and i + width / 2 are held by one lane, as its two packs.
template <typename T>
struct Rotation {
  using A = Accumulate<T>;
  const A* cos;
  const A* sin;
  A sign;  // -1: backward.

  __device__ void Rotate(const HeadWalk& walk, const Heads& heads, HeldRow<T, 2>& x) const {
    constexpr int kCount = kPackOf<T>;
    const int64_t at = walk.position() * (heads.width / 2) + heads.lane() * kCount;
    const auto coss = LoadPack<A, kCount>(cos + at), sins = LoadPack<A, kCount>(sin + at);
    Pack<T, kCount> first, second;
    for (int k = 0; k < kCount; ++k) {
      const A a = x.at(0, k), b = x.at(1, k), s = sign * sins.v[k];
      first.v[k] = T(a * coss.v[k] - b * s);
      second.v[k] = T(b * coss.v[k] + a * s);
    }
    x.Set(0, first);
    x.Set(1, second);
  }
};

template <typename T>
struct Forward {
  const T* x;
  const T* q_gain;
  const T* k_gain;
  T* y;
  Accumulate<T>* rstd;
  Accumulate<T> eps, gain_offset;
  Rotation<T> rotation;  // kRotated
  Heads heads;
};

template <typename T, int kHeld, bool kRotated>
__global__ void __launch_bounds__(kThreads) ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const Heads& heads = args.heads;
  for (HeadWalk walk(heads); walk.more(); walk.Advance()) {
    const int64_t at = walk.element();
    const T* gains = walk.is_query() ? args.q_gain : args.k_gain;
    HeldRow<T, kHeld> x, gain;
    const auto load = [&](int64_t i, int n) {
      x.Load(args.x + at, i, n);
      if (walk.is_normed()) gain.Load(gains, i, n);
    };
    A squares = 0;
    if (walk.has_head()) {
      ForRow<T, kHeld>(heads.shared(), load, [&](int64_t, int n) {
        for (int k = 0; k < x.kCount; ++k) squares += x.at(n, k) * x.at(n, k);
      });
    }
    const A r = A(1) / std::sqrt(HeadSum(heads, squares) / A(heads.width) + args.eps);
    if (!walk.has_head()) continue;
    if (walk.is_normed() && heads.lane() == 0) args.rstd[walk.statistic()] = r;
    const auto reload = [&](int64_t i, int n) {
      if constexpr (kHeld == 0) load(i, n);
    };
    const auto store = [&](int64_t i, int n) { x.Store(args.y + at, i, n); };
    const auto normalise = [&](int64_t, int n) {
      Pack<T, x.kCount> y;
      for (int k = 0; k < x.kCount; ++k) {
        y.v[k] = T(x.at(n, k) * r * (gain.at(n, k) + args.gain_offset));
      }
      x.Set(n, y);
    };
    if constexpr (kRotated) {
      if (walk.is_normed()) {
        ForRow<T, kHeld>(heads.shared(), normalise);
        args.rotation.Rotate(walk, heads, x);
      }
      ForRow<T, kHeld>(heads.shared(), store);
    } else {
      ForRow<T, kHeld>(heads.shared(), reload, [&](int64_t i, int n) {
        if (walk.is_normed()) normalise(i, n);
        store(i, n);
      });
    }
  }
}

template <typename T>
struct Backward {
  const T* dy;
  const T* x;
  const T* q_gain;
  const T* k_gain;
  const Accumulate<T>* rstd;
  T* dx;
  Accumulate<T> gain_offset;
  Accumulate<T>* dgains;  // [blocks, 2, d]: query and key heads, for each block.
  Rotation<T> rotation;   // kRotated
  Heads heads;
};

// A thread's terms of a gain's gradient. If held in registers, they are added to those of the
// block's other teams at the end. Otherwise a block is one warp, and the terms are in the memory of
// the result.
template <typename T, int kHeld>
class GainSums {
 public:
  using A = Accumulate<T>;
  static constexpr int kCount = kRowPack<T, kHeld>;

  __device__ GainSums(A* of_block, const Heads& heads) : of_block_(of_block) {
    if constexpr (kHeld == 0) {
      ForRow<T, 0>(heads.shared(), [&](int64_t i, int) { of_block_[i] = 0; });
    }
  }
  __device__ void Add(int64_t i, int n, int k, A term) {
    if constexpr (kHeld > 0) {
      sums_[n][k] += term;
    } else {
      of_block_[i] += term;
    }
  }
  // All threads of the block must call it.
  __device__ void Store(const Heads& heads) const {
    if constexpr (kHeld > 0) {
      constexpr int kOfThread = kHeld * kCount;
      __shared__ A of_thread[kThreads * kOfThread];
      const int span = heads.lanes * kOfThread, teams = int(blockDim.x) / heads.lanes;
      A* const mine = of_thread + int(threadIdx.x) / heads.lanes * span;
      for (int n = 0; n < kHeld; ++n) {
        const int i = (n * heads.lanes + heads.lane()) * kCount;
        for (int k = 0; k < kCount; ++k) mine[i + k] = sums_[n][k];
      }
      __syncthreads();
      for (int i = int(threadIdx.x); i < heads.width; i += int(blockDim.x)) {
        A sum = 0;
        for (int team = 0; team < teams; ++team) sum += of_thread[team * span + i];
        of_block_[i] = sum;
      }
      __syncthreads();  // Before the next gain's terms are written there.
    }
  }

 private:
  A* of_block_;
  A sums_[kHeld > 0 ? kHeld : 1][kCount] = {};
};

template <typename T, int kHeld, bool kRotated>
__global__ void __launch_bounds__(kThreads) BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  const Heads& heads = args.heads;
  A* const of_block = args.dgains + 2 * blockIdx.x * heads.width;
  GainSums<T, kHeld> dq_gain(of_block, heads), dk_gain(of_block + heads.width, heads);
  for (HeadWalk walk(heads); walk.more(); walk.Advance()) {
    const int64_t at = walk.element();
    const bool normed = walk.is_normed(), query = walk.is_query();
    const T* gains = query ? args.q_gain : args.k_gain;
    const A r = normed ? args.rstd[walk.statistic()] : A(0);
    HeldRow<T, kHeld> x, dy, gain;
    const auto load = [&](int64_t i, int n) {
      dy.Load(args.dy + at, i, n);
      if (!normed) return;
      x.Load(args.x + at, i, n);
      gain.Load(gains, i, n);
    };
    A dot = 0;
    const auto add = [&](int64_t i, int n) {
      if (!normed) return;
      for (int k = 0; k < x.kCount; ++k) {
        const A term = dy.at(n, k) * x.at(n, k) * r;
        query ? dq_gain.Add(i, n, k, term) : dk_gain.Add(i, n, k, term);
        dot += term * (gain.at(n, k) + args.gain_offset);
      }
    };
    if (walk.has_head()) {
      if constexpr (kRotated) {
        ForRow<T, kHeld>(heads.shared(), load);
        if (normed) args.rotation.Rotate(walk, heads, dy);
        ForRow<T, kHeld>(heads.shared(), add);
      } else {
        ForRow<T, kHeld>(heads.shared(), load, add);
      }
    }
    const A along = HeadSum(heads, dot) * r / A(heads.width);
    if (!walk.has_head()) continue;
    const auto reload = [&](int64_t i, int n) {
      if constexpr (kHeld == 0) load(i, n);
    };
    ForRow<T, kHeld>(heads.shared(), reload, [&](int64_t i, int n) {
      Pack<T, x.kCount> dx;
      for (int k = 0; k < x.kCount; ++k) {
        const A normed_dx =
            r * (dy.at(n, k) * (gain.at(n, k) + args.gain_offset) - x.at(n, k) * along);
        dx.v[k] = T(normed ? normed_dx : dy.at(n, k));
      }
      StoreRow(args.dx + at + i, dx);
    });
  }
  dq_gain.Store(heads);
  dk_gain.Store(heads);
}

struct HeadPlan {
  Heads heads;
  int held;
  int threads;
  int64_t blocks;
  bool paired;  // Whether each lane holds both dims of each pair of a rotation.
};

// Plans both directions, for all of these addresses.
template <typename T, typename Args, typename... Pointers>
HeadPlan PlanHeads(const Args& args, const Pointers*... pointers) {
  const int64_t width = args.q_gain.elements();
  const int64_t part = CeilDiv(width, kMostHeld * kPackOf<T>);
  const bool held = CanPack<T>(width, pointers...) && part <= kWarp;
  int lanes = held ? 1 : kWarp;
  while (held && lanes < part) lanes *= 2;
  const Heads heads = {.rows = args.x.shape.rows(),
                       .width = width,
                       .query = args.heads,
                       .normed = args.heads + args.kv_heads,
                       .all = args.heads + 2 * args.kv_heads,
                       .lanes = lanes,
                       .sequence = std::max<int64_t>(args.sequence, 1)};
  const int64_t wanted = CeilDiv(heads.rows * heads.all * lanes, kWarp) * kWarp;
  const int threads = int(std::min<int64_t>(wanted, kThreads));
  return {.heads = heads,
          .held = held ? kMostHeld : 0,
          .threads = threads,
          .blocks = std::min(CeilDiv(wanted, threads), kMaxBlocks),
          .paired = held && width == lanes * kMostHeld * kPackOf<T> &&
                    CanPack<Accumulate<T>>(width / 2, args.cos.data, args.sin.data)};
}

template <typename T, typename Args>
Rotation<T> RotationIn(const Args& args, Accumulate<T> sign) {
  using A = Accumulate<T>;
  return {.cos = static_cast<const A*>(args.cos.data),
          .sin = static_cast<const A*>(args.sin.data),
          .sign = sign};
}

template <typename T>
void NormForward(Exec& exec, const HeadNormForwardArgs& args) {
  using A = Accumulate<T>;
  const HeadPlan plan =
      PlanHeads<T>(args, args.x.data, args.q_gain.data, args.k_gain.data, args.y.data);
  const bool rotated = args.cos.data != nullptr;
  const Forward<T> forward = {.x = args.x.as<T>(),
                              .q_gain = args.q_gain.as<T>(),
                              .k_gain = args.k_gain.as<T>(),
                              .y = args.y.as<T>(),
                              .rstd = args.rstd.as<A>(),
                              .eps = A(args.eps),
                              .gain_offset = A(args.gain_offset),
                              .rotation = RotationIn<T>(args, A(1)),
                              .heads = plan.heads};
  const auto kernel = plan.held == 0           ? ForwardKernel<T, 0, false>
                      : rotated && plan.paired ? ForwardKernel<T, kMostHeld, true>
                                               : ForwardKernel<T, kMostHeld, false>;
  Launch(exec, {plan.blocks, plan.threads}, kernel, forward);
  if (rotated && !plan.paired) Rope(exec, RotationOf(args, args.y, args.y, /*inverse=*/false));
}

template <typename T>
void NormBackward(Exec& exec, const HeadNormBackwardArgs& args) {
  using A = Accumulate<T>;
  const HeadPlan plan = PlanHeads<T>(args, args.dy.data, args.x.data, args.q_gain.data,
                                     args.k_gain.data, args.dx.data);
  const int64_t width = plan.heads.width;
  const bool rotated = args.cos.data != nullptr, apart = rotated && !plan.paired;
  if (apart) Rope(exec, RotationOf(args, args.dy, args.dx, /*inverse=*/true));
  const Backward<T> backward = {.dy = apart ? args.dx.as<T>() : args.dy.as<T>(),
                                .x = args.x.as<T>(),
                                .q_gain = args.q_gain.as<T>(),
                                .k_gain = args.k_gain.as<T>(),
                                .rstd = args.rstd.as<A>(),
                                .dx = args.dx.as<T>(),
                                .gain_offset = A(args.gain_offset),
                                .dgains = ScratchOf<A>(exec, plan.blocks * 2 * width),
                                .rotation = RotationIn<T>(args, A(-1)),
                                .heads = plan.heads};
  if (plan.held == 0) {
    Launch(exec, {plan.blocks, kWarp}, BackwardKernel<T, 0, false>, backward);
  } else {
    Launch(exec, {plan.blocks, plan.threads},
           rotated && plan.paired ? BackwardKernel<T, kMostHeld, true>
                                  : BackwardKernel<T, kMostHeld, false>,
           backward);
  }
  AddRuns(exec, backward.dgains, plan.blocks,
          ColumnOutputs<A, 2>{{args.dq_gain.as<A>(), args.dk_gain.as<A>()}, width, args.write});
}

}  // namespace

void HeadNormForward(Exec& exec, const HeadNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { NormForward<decltype(scalar)>(exec, args); });
}

void HeadNormBackward(Exec& exec, const HeadNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { NormBackward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cuda
