// Momentum and update are bound by memory. Newton-Schulz is bound by its matrix products.

#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/optimizer/muon.h"
#include "kernels/products/matmul.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

// The sums of a thread: that of StepState::read, then that of StepState::written.
using MuonSums = uint32_t[2];

__device__ void AddSums(MuonSums& sums, uint32_t* read, uint32_t* written) {
  BlockSums(sums);
  if (threadIdx.x != 0) return;
  atomicAdd(read, sums[0]);
  atomicAdd(written, sums[1]);
}

template <typename A>
struct MomentumCoefficients {
  A keep, fresh, clip;
};

template <int kCount, typename A>
__device__ void MomentumPack(A* ms, A* grads, const MomentumCoefficients<A>& k, MuonSums& sums) {
  auto m = LoadPack<A, kCount>(ms);
  auto g = LoadPack<A, kCount>(grads);
  for (int n = 0; n < kCount; ++n) {
    const A clipped = g.v[n] * k.clip;
    sums[0] += WordSum(m.v[n]);
    m.v[n] = k.keep * m.v[n] + k.fresh * clipped;
    sums[1] += WordSum(m.v[n]);
    g.v[n] = k.keep * m.v[n] + k.fresh * clipped;
  }
  StorePack(ms, m);
  StorePack(grads, g);
}

template <int kCount, typename A>
__global__ void __launch_bounds__(kThreads)
    MomentumKernel(A* ms, A* grads, int64_t count, double momentum, StepState* state) {
  if (state->finite == 0) return;
  const MomentumCoefficients<A> k = {A(momentum), A(1 - momentum), A(state->clip_factor)};
  const int64_t stride = int64_t(gridDim.x) * kThreads, packs = count / kCount;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t rest = packs * kCount + thread;  // The elements after the last pack, one by one.
  MuonSums sums = {};
  for (int64_t i = thread; i < packs; i += stride) {
    MomentumPack<kCount>(ms + i * kCount, grads + i * kCount, k, sums);
  }
  if (rest < count) MomentumPack<1>(ms + rest, grads + rest, k, sums);
  AddSums(sums, &state->read.m, &state->written.m);
}

template <typename A>
void LaunchMomentum(Exec& exec, const MuonMomentumArgs& args) {
  A* const ms = args.m.as<A>();
  A* const grads = args.grad.as<A>();
  const int64_t count = args.m.elements();
  const bool packed = CanPack<A>(0, ms, grads);
  const auto kernel = packed ? MomentumKernel<kPackOf<A>, A> : MomentumKernel<1, A>;
  const int64_t threads = packed ? CeilDiv(count, kPackOf<A>) : count;
  Launch(exec, {std::min(CeilDiv(threads, kThreads), kMaxBlocks), kThreads}, kernel, ms, grads,
         count, args.momentum, args.state);
}

// factor = 1 / max(root of the trace, the least norm). One block.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FactorKernel(const T* gram, int64_t k, Accumulate<T>* factor) {
  double trace = 0;
  for (int64_t i = threadIdx.x; i < k; i += kThreads) {
    trace += double(Accumulate<T>(gram[i * k + i]));
  }
  trace = BlockSum(trace);
  if (threadIdx.x == 0) {
    const double norm = std::sqrt(trace);
    *factor = Accumulate<T>(1 / (norm > kNewtonSchulzLeastNorm ? norm : kNewtonSchulzLeastNorm));
  }
}

template <typename T>
struct ScaleBody {
  T* x;
  const Accumulate<T>* factor;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    auto xs = LoadPack<T, kCount>(x + i);
    for (int n = 0; n < kCount; ++n) xs.v[n] = T(*factor * Accumulate<T>(xs.v[n]));
    StorePack(x + i, xs);
  }
};

// y = T(a y + b z).
template <typename T>
struct CombineBody {
  T* y;
  const Accumulate<T>* z;
  Accumulate<T> a, b;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    auto ys = LoadPack<T, kCount>(y + i);
    const auto zs = LoadPack<Accumulate<T>, kCount>(z + i);
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(a * Accumulate<T>(ys.v[n]) + b * zs.v[n]);
    StorePack(y + i, ys);
  }
};

// A pack has 16 bytes of the wider dtype.
template <typename T>
void Combine(Exec& exec, const Tensor& y, Accumulate<T> a, const Tensor& z, Accumulate<T> b) {
  using A = Accumulate<T>;
  const CombineBody<T> body = {y.as<T>(), z.as<A>(), a, b};
  const int64_t count = y.elements();
  ForEachPack<A>(exec, count, CanPack<A>(count, body.y, body.z), body);
}

template <typename T>
void Iterate(Exec& exec, const NewtonSchulzArgs& args) {
  using A = Accumulate<T>;
  const Tensor &x = args.x, &gram = args.gram;
  const int64_t k = gram.shape[0];
  const bool tall = x.shape.rows() > k;
  const MatMulArgs to_gram{.a = x, .b = x, .c = gram, .trans_a = tall, .trans_b = !tall};
  MatMul(exec, to_gram);
  // `square` is not in use yet.
  A* const factor = args.square.as<A>();
  Launch(exec, {1, kThreads}, FactorKernel<T>, gram.as<T>(), k, factor);
  const ScaleBody<T> scale = {x.as<T>(), factor};
  ForEachPack<T>(exec, x.elements(), CanPack<T>(x.elements(), scale.x), scale);
  const double a = kNewtonSchulz[0], b = kNewtonSchulz[1], c = kNewtonSchulz[2];
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    MatMul(exec, to_gram);
    MatMul(exec, {.a = gram, .b = gram, .c = args.square});
    Combine<T>(exec, gram, A(b), args.square, A(c));
    MatMul(exec, {.a = tall ? x : gram, .b = tall ? gram : x, .c = args.y});
    Combine<T>(exec, x, A(a), args.y, A(1));
  }
}

// The arguments for masters of type A, a compute copy of type T and an update of type U.
template <typename A, typename T, typename U>
struct Piece {
  A* master;
  T* compute;  // May be null.
  const U* x;  // The first element of the piece.
  int64_t rows, columns, stride;
  double weight_decay, scale;
  StepState* state;
};

// Updates `kCount` elements, which are neighbours in a row.
template <int kCount, typename A, typename T, typename U>
__device__ void PiecePack(const Piece<A, T, U>& p, int64_t i, A keep, A rate, MuonSums& sums) {
  const U* const x = p.x + i / p.columns * p.stride + i % p.columns;
  const auto xs = LoadPack<U, kCount>(x);
  auto masters = LoadPack<A, kCount>(p.master + i);
  Pack<T, kCount> computes;
  for (int n = 0; n < kCount; ++n) {
    sums[0] += WordSum(masters.v[n]);
    masters.v[n] = keep * masters.v[n] - rate * A(Accumulate<U>(xs.v[n]));
    sums[1] += WordSum(masters.v[n]);
    computes.v[n] = T(Accumulate<T>(masters.v[n]));
  }
  StorePack(p.master + i, masters);
  if (p.compute != nullptr) StorePack(p.compute + i, computes);
}

template <int kCount, typename A, typename T, typename U>
__global__ void __launch_bounds__(kThreads) PieceKernel(Piece<A, T, U> p) {
  if (p.state->finite == 0) return;
  const double learning_rate = p.state->learning_rate;
  const A keep = A(1 - learning_rate * p.weight_decay), rate = A(learning_rate * p.scale);
  const int64_t stride = int64_t(gridDim.x) * kThreads, packs = p.rows * p.columns / kCount;
  MuonSums sums = {};
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += stride) {
    PiecePack<kCount>(p, i * kCount, keep, rate, sums);
  }
  AddSums(sums, &p.state->read.master, &p.state->written.master);
}

template <typename A, typename T, typename U>
void LaunchPiece(Exec& exec, const MuonUpdateArgs& args) {
  const int64_t columns = args.master.shape.back(), stride = args.x.shape.back();
  const double size = double(std::max(args.x.shape.rows(), stride));
  const Piece<A, T, U> p = {
      .master = args.master.as<A>(),
      .compute = args.compute.data != nullptr ? args.compute.as<T>() : nullptr,
      .x = args.x.as<U>() + args.row * stride + args.column,
      .rows = args.master.shape.rows(),
      .columns = columns,
      .stride = stride,
      .weight_decay = args.weight_decay,
      .scale = kMuonScale * std::sqrt(size),
      .state = args.state};
  const bool packed = CanPack<A>(columns, p.master, p.compute, p.x) && stride % kPackOf<A> == 0;
  const auto kernel = packed ? PieceKernel<kPackOf<A>, A, T, U> : PieceKernel<1, A, T, U>;
  const int64_t threads = p.rows * columns / (packed ? kPackOf<A> : 1);
  Launch(exec, {std::min(CeilDiv(threads, kThreads), kMaxBlocks), kThreads}, kernel, p);
}

}  // namespace

void MuonMomentum(Exec& exec, const MuonMomentumArgs& args) {
  args.m.dtype == DType::kF64 ? LaunchMomentum<double>(exec, args)
                              : LaunchMomentum<float>(exec, args);
}

void NewtonSchulz(Exec& exec, const NewtonSchulzArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Iterate<decltype(scalar)>(exec, args); });
}

void MuonUpdate(Exec& exec, const MuonUpdateArgs& args) {
  const bool bf16_copy = args.compute.data != nullptr && args.compute.dtype == DType::kBF16;
  if (args.master.dtype == DType::kF64) {
    bf16_copy ? LaunchPiece<double, bf16, double>(exec, args)
              : LaunchPiece<double, double, double>(exec, args);
  } else if (args.x.dtype == DType::kF32) {
    bf16_copy ? LaunchPiece<float, bf16, float>(exec, args)
              : LaunchPiece<float, float, float>(exec, args);
  } else {
    bf16_copy ? LaunchPiece<float, bf16, bf16>(exec, args)
              : LaunchPiece<float, float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cuda
