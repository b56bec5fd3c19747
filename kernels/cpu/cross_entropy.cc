#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

void CheckTargets(const int32_t* targets, int64_t count, int64_t vocab) {
  for (int64_t t = 0; t < count; ++t) {
    CHECK(targets[t] >= -1 && targets[t] < vocab)
        << "cross_entropy targets: target " << targets[t] << " at " << t << ", logits have "
        << vocab << " columns";
  }
}

template <typename A>
void Forward(const Exec& exec, const CrossEntropyForwardArgs& args) {
  const int64_t rows = args.logits.shape.rows(), vocab = args.logits.shape.back();
  const A* logits = args.logits.as<A>();
  A* lse = args.lse.as<A>();
  ParallelRows(exec, rows, vocab, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const A* row = logits + t * vocab;
      A largest = row[0], sum = 0;
#pragma omp simd reduction(max : largest)
      for (int64_t v = 0; v < vocab; ++v) largest = row[v] > largest ? row[v] : largest;
#pragma omp simd reduction(+ : sum)
      for (int64_t v = 0; v < vocab; ++v) sum += Exp(row[v] - largest);
      lse[t] = largest + std::log(sum);
    }
  });
  const int32_t* targets = args.targets.as<int32_t>();
  double loss = 0;
  for (int64_t t = 0; t < rows; ++t) {
    if (targets[t] >= 0) loss += double(lse[t]) - double(logits[t * vocab + targets[t]]);
  }
  args.state->loss += args.state->loss_scale * loss;
}

template <typename A, typename T>
void Backward(const Exec& exec, const CrossEntropyBackwardArgs& args) {
  const int64_t rows = args.logits.shape.rows(), vocab = args.logits.shape.back();
  const A* logits = args.logits.as<A>();
  const A* lse = args.lse.as<A>();
  const int32_t* targets = args.targets.as<int32_t>();
  T* dlogits = args.dlogits.as<T>();
  const A scale = A(args.state->loss_scale);
  ParallelRows(exec, rows, vocab, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const A* row = logits + t * vocab;
      T* out = dlogits + t * vocab;
      if (targets[t] < 0) {
        std::fill_n(out, vocab, T(A(0)));
        continue;
      }
      const A probability = Exp(row[targets[t]] - lse[t]);  // Read first: out may be row.
      const A offset = lse[t];
#pragma omp simd
      for (int64_t v = 0; v < vocab; ++v) out[v] = T(scale * Exp(row[v] - offset));
      out[targets[t]] = T(scale * (probability - A(1)));
    }
  });
}

}  // namespace

void CrossEntropyForward(Exec& exec, const CrossEntropyForwardArgs& args) {
  CheckTargets(args.targets.as<int32_t>(), args.targets.elements(), args.logits.shape.back());
  if (args.logits.dtype == DType::kF64) {
    Forward<double>(exec, args);
  } else {
    Forward<float>(exec, args);
  }
}

void CrossEntropyBackward(Exec& exec, const CrossEntropyBackwardArgs& args) {
  CheckTargets(args.targets.as<int32_t>(), args.targets.elements(), args.logits.shape.back());
  if (args.logits.dtype == DType::kF64) {
    Backward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    Backward<float, float>(exec, args);
  } else {
    Backward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cpu
