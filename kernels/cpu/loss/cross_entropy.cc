#include "kernels/loss/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

void CheckTargets(const ConstTensor& targets, int64_t vocab) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t t = 0; t < targets.elements(); ++t) {
    CHECK(target[t] >= -1 && target[t] < vocab)
        << "cross_entropy targets: target " << target[t] << " at " << t << ", the vocabulary has "
        << vocab << " ids";
  }
}

// The softmax of a row of logits, or of a slice of a row.
template <typename A>
struct Softmax {
  A largest;
  A sum;  // of exp(logit - largest)
  A lse() const { return largest + std::log(sum); }
};

// L: the dtype of logits.
template <typename L, typename A = Accumulate<L>>
Softmax<A> SoftmaxOf(const L* row, int64_t vocab) {
  A largest = A(row[0]), sum = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t v = 0; v < vocab; ++v) largest = A(row[v]) > largest ? A(row[v]) : largest;
#pragma omp simd reduction(+ : sum)
  for (int64_t v = 0; v < vocab; ++v) sum += Exp(A(row[v]) - largest);
  return {largest, sum};
}

template <typename L>
void Forward(const Exec& exec, const CrossEntropyForwardArgs& args) {
  using A = Accumulate<L>;
  const int64_t rows = args.logits.shape.rows(), columns = args.logits.shape.back();
  const int64_t ids = IdsOf(args.slice, columns);
  const L* logits = args.logits.as<L>();
  const int32_t* targets = args.targets.as<int32_t>();
  A* lse = args.lse.as<A>();
  const bool counted_alone = args.dlogits.data != nullptr;
  ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      lse[t] = 0;
      if (counted_alone && targets[t] < 0) continue;
      lse[t] = SoftmaxOf(logits + t * columns, ids).lse();
    }
  });
  if (args.log_probs.data != nullptr) {
    A* log_probs = args.log_probs.as<A>();
    for (int64_t t = 0; t < rows; ++t) {
      log_probs[t] = targets[t] >= 0 ? A(logits[t * columns + targets[t]]) - lse[t] : A(0);
    }
    return;
  }
  double loss = 0;
  for (int64_t t = 0; t < rows; ++t) {
    if (targets[t] >= 0) loss += double(lse[t]) - double(A(logits[t * columns + targets[t]]));
  }
  args.state->loss += args.state->loss_scale * loss;
}

template <typename L>
void Statistics(const Exec& exec, const CrossEntropyStatisticsArgs& args) {
  using A = Accumulate<L>;
  const int64_t rows = args.logits.shape.rows(), columns = args.logits.shape.back();
  const int64_t first = args.slice.first, ids = IdsOf(args.slice, columns);
  const L* logits = args.logits.as<L>();
  const int32_t* targets = args.targets.as<int32_t>();
  A* statistics = args.statistics.as<A>();
  ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const L* row = logits + t * columns;
      const auto [largest, sum] = SoftmaxOf(row, ids);
      const int64_t target = targets[t] - first;
      const bool held = target >= 0 && target < ids;
      A* out = statistics + t * 3;
      out[0] = largest, out[1] = sum, out[2] = held ? A(row[target]) : A(0);
    }
  });
}

template <typename A>
void Combine(const CrossEntropyCombineArgs& args) {
  const int64_t ranks = args.statistics.shape[0], rows = args.targets.elements();
  const A* statistics = args.statistics.as<A>();
  const int32_t* targets = args.targets.as<int32_t>();
  A* lse = args.lse.as<A>();
  A* const log_probs = args.log_probs.data == nullptr ? nullptr : args.log_probs.as<A>();
  double loss = 0;
  for (int64_t t = 0; t < rows; ++t) {
    const auto of = [&](int64_t rank) { return statistics + (rank * rows + t) * 3; };
    Softmax<A> all = {of(0)[0], A(0)};
    A target_logit = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      all.largest = of(rank)[0] > all.largest ? of(rank)[0] : all.largest;
      target_logit += of(rank)[2];
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      all.sum += of(rank)[1] * Exp(of(rank)[0] - all.largest);
    }
    lse[t] = all.lse();
    if (log_probs != nullptr) {
      log_probs[t] = targets[t] >= 0 ? target_logit - lse[t] : A(0);
      continue;
    }
    const bool mine = t >= args.loss_begin && t < args.loss_begin + args.loss_rows;
    if (mine && targets[t] >= 0) loss += double(lse[t]) - double(target_logit);
  }
  if (log_probs == nullptr) args.state->loss += args.state->loss_scale * loss;
}

template <typename L, typename T>
void Backward(const Exec& exec, const CrossEntropyBackwardArgs& args) {
  using A = Accumulate<L>;
  const int64_t rows = args.logits.shape.rows(), columns = args.logits.shape.back();
  const int64_t first = args.slice.first, ids = IdsOf(args.slice, columns);
  const L* logits = args.logits.as<L>();
  const A* lse = args.lse.as<A>();
  const int32_t* targets = args.targets.as<int32_t>();
  T* dlogits = args.dlogits.as<T>();
  const A of_loss = A(args.state->loss_scale);
  const A* const dlog_probs = args.dlog_probs.data == nullptr ? nullptr : args.dlog_probs.as<A>();
  ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const L* row = logits + t * columns;
      T* out = dlogits + t * columns;
      if (targets[t] < 0) {
        std::fill_n(out, columns, T(A(0)));
        continue;
      }
      const A offset = lse[t], scale = dlog_probs == nullptr ? of_loss : -dlog_probs[t];
      const int64_t target = targets[t] - first;
      const bool held = target >= 0 && target < ids;
      const A probability =
          held ? Exp(A(row[target]) - offset) : A(0);  // Before out is written, which may be row.
#pragma omp simd
      for (int64_t v = 0; v < ids; ++v) out[v] = T(scale * Exp(A(row[v]) - offset));
      std::fill(out + ids, out + columns, T(A(0)));
      if (held) out[target] = T(scale * (probability - A(1)));
    }
  });
}

}  // namespace

void CrossEntropyForward(Exec& exec, const CrossEntropyForwardArgs& args) {
  CheckTargets(args.targets, VocabOf(args.slice, args.logits.shape.back()));
  DispatchFloat(args.logits.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
  if (args.dlogits.data == nullptr) return;
  CrossEntropyBackward(exec, {.logits = args.logits,
                              .targets = args.targets,
                              .lse = args.lse,
                              .state = args.state,
                              .dlogits = args.dlogits,
                              .slice = args.slice});
}

void CrossEntropyStatistics(Exec& exec, const CrossEntropyStatisticsArgs& args) {
  CheckTargets(args.targets, VocabOf(args.slice, args.logits.shape.back()));
  DispatchFloat(args.logits.dtype, [&](auto scalar) { Statistics<decltype(scalar)>(exec, args); });
}

void CrossEntropyCombine(Exec&, const CrossEntropyCombineArgs& args) {
  if (args.statistics.dtype == DType::kF64) {
    Combine<double>(args);
  } else {
    Combine<float>(args);
  }
}

void CrossEntropyBackward(Exec& exec, const CrossEntropyBackwardArgs& args) {
  CheckTargets(args.targets, VocabOf(args.slice, args.logits.shape.back()));
  DispatchFloat(args.logits.dtype, [&](auto scalar) {
    using L = decltype(scalar);
    args.dlogits.dtype == args.logits.dtype ? Backward<L, L>(exec, args)
                                            : Backward<float, bf16>(exec, args);
  });
}

}  // namespace trainyard::cpu
