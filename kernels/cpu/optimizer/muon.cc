#include "kernels/optimizer/muon.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer/update.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {
namespace {

template <typename A>
void Momentum(const Exec& exec, const MuonMomentumArgs& args) {
  A* const ms = args.m.as<A>();
  A* const grads = args.grad.as<A>();
  const A keep = A(args.momentum), fresh = A(1 - args.momentum), clip = A(args.state->clip_factor);
  const auto update = [=](int64_t begin, int64_t end, WordSums& read, WordSums& written) {
    uint32_t old_words = 0, words = 0;
#pragma omp simd reduction(+ : old_words, words)
    for (int64_t i = begin; i < end; ++i) {
      const A g = grads[i] * clip, old_m = ms[i];
      const A m = keep * old_m + fresh * g;
      ms[i] = m;
      grads[i] = keep * m + fresh * g;
      old_words += WordSum(old_m);
      words += WordSum(m);
    }
    read.m += old_words;
    written.m += words;
  };
  UpdateMasters<A, A>(exec, args.m, {}, *args.state, update);
}

// y = T(a y + b z).
template <typename T>
void Combine(const Exec& exec, const Tensor& y, Accumulate<T> a, const Tensor& z, Accumulate<T> b) {
  T* const ys = y.as<T>();
  const Accumulate<T>* const zs = z.as<Accumulate<T>>();
  ParallelElements(exec, y.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) ys[i] = T(a * Accumulate<T>(ys[i]) + b * zs[i]);
  });
}

template <typename T>
void Scale(const Exec& exec, const Tensor& x, Accumulate<T> factor) {
  T* const xs = x.as<T>();
  ParallelElements(exec, x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) xs[i] = T(factor * Accumulate<T>(xs[i]));
  });
}

template <typename T>
void Iterate(Exec& exec, const NewtonSchulzArgs& args) {
  using A = Accumulate<T>;
  const auto& [x, y, gram, square] = args;
  const int64_t k = gram.shape[0];
  const bool tall = x.shape.rows() > k;
  const auto [a, b, c] = kNewtonSchulz;
  const MatMulArgs to_gram{.a = x, .b = x, .c = gram, .trans_a = tall, .trans_b = !tall};
  MatMul(exec, to_gram);
  double trace = 0;  // The sum of the squares of x.
  for (int64_t i = 0; i < k; ++i) trace += double(A(gram.as<T>()[i * k + i]));
  const double factor = 1 / std::max(std::sqrt(trace), kNewtonSchulzLeastNorm);
  Scale<T>(exec, x, A(factor));
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    MatMul(exec, to_gram);
    MatMul(exec, {.a = gram, .b = gram, .c = square});
    Combine<T>(exec, gram, A(b), square, A(c));
    MatMul(exec, {.a = tall ? x : gram, .b = tall ? gram : x, .c = y});
    Combine<T>(exec, x, A(a), y, A(1));
  }
}

// The piece of masters of type A, with a copy of type T, by an update of type U.
template <typename A, typename T, typename U>
void Update(const Exec& exec, const MuonUpdateArgs& args) {
  const int64_t columns = args.master.shape.back(), stride = args.x.shape.back();
  const double size = double(std::max(args.x.shape.rows(), stride));
  const A keep = A(1 - args.state->learning_rate * args.weight_decay);
  const A rate = A(args.state->learning_rate * kMuonScale * std::sqrt(size));
  A* const masters = args.master.as<A>();
  T* const copies = args.compute.data != nullptr ? args.compute.as<T>() : nullptr;
  const U* const xs = args.x.as<U>() + args.row * stride + args.column;
  StepState& state = *args.state;
  Mutex mutex;  // Guards the sums in the state.
  ParallelRows(exec, args.master.shape.rows(), columns, [&](int64_t begin, int64_t end) {
    uint32_t old_words = 0, words = 0;
    for (int64_t row = begin; row < end; ++row) {
      A* const master = masters + row * columns;
      const U* const x = xs + row * stride;
#pragma omp simd reduction(+ : old_words, words)
      for (int64_t i = 0; i < columns; ++i) {
        old_words += WordSum(master[i]);
        master[i] = keep * master[i] - rate * A(x[i]);
        words += WordSum(master[i]);
      }
      if (copies == nullptr) continue;
      T* const copy = copies + row * columns;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) copy[i] = T(Accumulate<T>(master[i]));
    }
    const MutexLock lock(mutex);
    state.read.master += old_words;
    state.written.master += words;
  });
}

}  // namespace

void MuonMomentum(Exec& exec, const MuonMomentumArgs& args) {
  if (args.state->finite == 0) return;
  args.m.dtype == DType::kF64 ? Momentum<double>(exec, args) : Momentum<float>(exec, args);
}

void NewtonSchulz(Exec& exec, const NewtonSchulzArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Iterate<decltype(scalar)>(exec, args); });
}

void MuonUpdate(Exec& exec, const MuonUpdateArgs& args) {
  if (args.state->finite == 0) return;
  DispatchUpdate(args.master, args.compute, [&]<typename A, typename T>() {
    DispatchFloat(args.x.dtype, [&](auto x) { Update<A, T, decltype(x)>(exec, args); });
  });
}

}  // namespace trainyard::cpu
