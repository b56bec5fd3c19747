#include "kernels/embedding.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

void CheckTokens(const int32_t* tokens, int64_t count, int64_t vocab) {
  for (int64_t t = 0; t < count; ++t) {
    CHECK(tokens[t] >= 0 && tokens[t] < vocab) << "embedding tokens: token " << tokens[t] << " at "
                                               << t << ", the table has " << vocab << " rows";
  }
}

template <typename T>
void Backward(const Exec& exec, const EmbeddingBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.tokens.elements();
  const int64_t d = args.dy.shape.back(), vocab = args.dtable.shape.rows();
  const T* dy = args.dy.as<T>();
  const int32_t* token = args.tokens.as<int32_t>();
  A* dtable = args.dtable.as<A>();
  if (args.write == Write::kOverwrite) {
    ParallelElements(exec, vocab * d, [=](int64_t begin, int64_t end) {
      std::fill(dtable + begin, dtable + end, A(0));
    });
  }
  // Threads share out the columns: two tokens of one row of the table never race.
  ParallelRanges(exec, d, tokens, 16, [=](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      A* row = dtable + token[t] * d;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) row[i] += A(dy[t * d + i]);
    }
  });
}

}  // namespace

void EmbeddingForward(Exec& exec, const EmbeddingForwardArgs& args) {
  const int64_t tokens = args.tokens.elements();
  const int32_t* token = args.tokens.as<int32_t>();
  CheckTokens(token, tokens, args.table.shape.rows());
  const int64_t d = args.table.shape.back(), row_bytes = d * SizeOf(args.table.dtype);
  const auto* table = static_cast<const std::byte*>(args.table.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  ParallelRows(exec, tokens, d, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::copy_n(table + token[t] * row_bytes, row_bytes, y + t * row_bytes);
    }
  });
}

void EmbeddingBackward(Exec& exec, const EmbeddingBackwardArgs& args) {
  CheckTokens(args.tokens.as<int32_t>(), args.tokens.elements(), args.dtable.shape.rows());
  DispatchFloat(args.dy.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
