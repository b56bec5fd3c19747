#include "kernels/embeddings/embedding.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

void CheckTokens(const int32_t* tokens, int64_t count, int64_t vocab) {
  for (int64_t t = 0; t < count; ++t) {
    CHECK(tokens[t] >= 0 && tokens[t] < vocab) << "embedding tokens: token " << tokens[t] << " at "
                                               << t << ", the vocabulary has " << vocab << " ids";
  }
}

template <typename T>
void Backward(const Exec& exec, const EmbeddingBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.tokens.elements();
  const int64_t d = args.dy.shape.back(), rows = args.dtable.shape.rows();
  const int64_t first = args.slice.first, padding = args.padding;
  const T* dy = args.dy.as<T>();
  const int32_t* token = args.tokens.as<int32_t>();
  const A scale = A(T(args.scale));
  A* dtable = args.dtable.as<A>();
  if (args.write == Write::kOverwrite) {
    ParallelElements(exec, rows * d, [=](int64_t begin, int64_t end) {
      std::fill(dtable + begin, dtable + end, A(0));
    });
  }
  // Threads divide the columns, so two tokens with the same row of the table never race.
  ParallelRanges(exec, d, tokens, 16, [=](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t v = token[t] - first;
      if (v < 0 || v >= rows || token[t] == padding) continue;
      A* row = dtable + v * d;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) row[i] += scale * A(dy[t * d + i]);
    }
  });
}

template <typename T, typename Y>
void Forward(const Exec& exec, const EmbeddingForwardArgs& args) {
  using A = Accumulate<T>;
  const int32_t* token = args.tokens.as<int32_t>();
  const int64_t rows = args.table.shape.rows(), first = args.slice.first;
  const int64_t d = args.table.shape.back();
  const T* table = args.table.as<T>();
  const A scale = A(Y(args.scale));
  Y* y_data = args.y.as<Y>();
  ParallelRows(exec, args.tokens.elements(), d, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t v = token[t] - first;
      Y* y = y_data + t * d;
      if (v < 0 || v >= rows) {
        std::fill_n(y, d, Y(0));
        continue;
      }
      const T* row = table + v * d;
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) y[i] = Y(scale * A(row[i]));
    }
  });
}

}  // namespace

void EmbeddingForward(Exec& exec, const EmbeddingForwardArgs& args) {
  CheckTokens(args.tokens.as<int32_t>(), args.tokens.elements(),
              VocabOf(args.slice, args.table.shape.rows()));
  DispatchFloat(args.table.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    args.y.dtype == args.table.dtype ? Forward<T, T>(exec, args)
                                     : Forward<T, Accumulate<T>>(exec, args);
  });
}

void EmbeddingBackward(Exec& exec, const EmbeddingBackwardArgs& args) {
  CheckTokens(args.tokens.as<int32_t>(), args.tokens.elements(),
              VocabOf(args.slice, args.dtable.shape.rows()));
  DispatchFloat(args.dy.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
