// What attention's products multiply: where a task's heads lie, and their copies in the forms that
// TileProduct takes. Plain products are of f32 or f64 values one by one, paired ones of bf16 two by
// two (bf16_pairs.h). A product sums over the head dim (scores), keys or queries (mixtures).

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/attention_core.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/bf16_pairs.h"

namespace trainyard::cpu {

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <typename A>
struct PlainProducts {
  using Sum = A;
  using Value = A;    // of an operand
  using Element = A;  // `kPer` values, neighbours in the dimension that is summed over
  static constexpr int64_t kPer = 1;
  using Args = TileProductArgs<Element, Sum>;
};

struct PairedProducts {
  using Sum = float;
  using Value = bf16;
  using Element = Bf16Pair;
  static constexpr int64_t kPer = 2;
  using Args = TileProductArgs<Element, Sum>;
};

// `count` rows of a head within a packed tensor.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  int64_t count;
};

// Where a task's heads and rows lie, and the sizes of its copies.
struct Layout {
  Layout(const AttentionDims& dims, const AttentionPart& part, int64_t task)
      : q_rows(part.q_rows),
        kv_rows(part.kv_rows),
        causal(part.causal),
        d(dims.head_dim),
        group(dims.heads / dims.kv_heads),
        batch(task / dims.kv_heads),
        kv_head(task % dims.kv_heads),
        first_head(kv_head * group),
        q_first(batch * dims.sequence + part.q_begin),
        kv_first(batch * dims.sequence + part.kv_begin),
        lse_first(batch * dims.heads * dims.sequence + part.q_begin),
        lse_row(dims.sequence),
        padded(RoundUp(d, kTileLanes)),
        scale(dims.scale) {}
  // A query head from row i of the part on, and the part's rows of the key/value head.
  template <typename T>
  T* Query(const Heads<T>& heads, int64_t head, int64_t i) const {
    return heads.data + (q_first + i) * heads.row + head * d;
  }
  template <typename T>
  Rows<T> Queries(const Heads<T>& heads, int64_t head, int64_t i, int64_t count) const {
    return {Query(heads, head, i), heads.row, count};
  }
  template <typename T>
  Rows<T> Key(const Heads<T>& heads) const {
    return {heads.data + kv_first * heads.row + kv_head * d, heads.row, kv_rows};
  }
  int64_t Statistic(int64_t head, int64_t i) const { return lse_first + head * lse_row + i; }

  int64_t q_rows, kv_rows;
  bool causal;
  int64_t d, group, batch, kv_head, first_head;
  int64_t q_first, kv_first, lse_first, lse_row;
  int64_t padded;  // d up to whole vectors
  double scale;
};

// Rows in both forms: `dots` [rows, padded / kPer] sums along the head dim, `mix` [rows / kPer,
// padded] across rows. One and the same where products are plain. Padded with zeroes.
template <typename Products>
struct Operand {
  using Element = typename Products::Element;
  Element* dots;
  Element* mix;

  // From row r on, a multiple of kPer.
  const Element* DotsAt(int64_t r, const Layout& at) const {
    return dots + r * at.padded / Products::kPer;
  }
  const Element* MixAt(int64_t r, const Layout& at) const {
    return mix + r / Products::kPer * at.padded;
  }
};

// to[r, c] = from[r, c]: the form `dots`.
template <typename Value, typename T>
void LoadDots(const Rows<const T>& from, const Layout& at, Value* to) {
  for (int64_t r = 0; r < from.count; ++r, to += at.padded) {
    const T* row = from.data + r * from.stride;
    if constexpr (std::is_same_v<T, Value>) {
      std::copy_n(row, at.d, to);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < at.d; ++c) to[c] = Value(row[c]);
    }
    std::fill(to + at.d, to + at.padded, Value(0));
  }
}

template <typename Products, typename T>
void LoadDots(const Rows<const T>& from, const Layout& at, const Operand<Products>& to) {
  LoadDots(from, at, reinterpret_cast<typename Products::Value*>(to.dots));
}
template <typename Products, typename T>
void LoadMix(const Rows<const T>& from, const Layout& at, const Operand<Products>& to) {
  if constexpr (Products::kPer == 2) {
    PairAcross(reinterpret_cast<const bf16*>(to.dots), from.count, at.padded, to.mix);
  }
}

// to[c, q] = from[q, c] of the loaded rows of a strip, of which there are `count`; zeroes for the
// other queries.
template <typename Products>
void Transpose(const typename Products::Element* dots, int64_t count, const Layout& at,
               typename Products::Element* to) {
  const int64_t columns = RoundUp(at.d, Products::kPer) / Products::kPer;
  const int64_t row = at.padded / Products::kPer;
  if constexpr (Products::kPer == 2) {
    TransposePairs({.rows = count,
                    .columns = columns,
                    .from = dots,
                    .from_row = row,
                    .to = to,
                    .to_row = kQueries});
    return;
  }
  for (int64_t c = 0; c < columns; ++c, to += kQueries) {
    for (int64_t q = 0; q < count; ++q) to[q] = dots[q * row + c];
    std::fill(to + count, to + kQueries, typename Products::Element{});
  }
}

// A block of weights [keys, kQueries] as the left operand of a mixture of keys, which sums over
// keys, or of queries. `to` is used for pairs alone.
template <typename Products>
const typename Products::Element* AcrossKeys(const typename Products::Sum* weights, int64_t keys,
                                             typename Products::Element* to) {
  if constexpr (Products::kPer == 1) return weights;
  if constexpr (Products::kPer == 2) {
    PairAcross(weights, keys, kQueries, to);
    return to;
  }
}
template <typename Products>
const typename Products::Element* AlongQueries(const typename Products::Sum* weights, int64_t keys,
                                               typename Products::Element* to) {
  if constexpr (Products::kPer == 1) return weights;
  if constexpr (Products::kPer == 2) {
    PairAlong(weights, keys, kQueries, to);
    return to;
  }
}

// Hands out the pieces of a task's scratch.
class Pieces {
 public:
  explicit Pieces(std::byte* data) : next_(data) {}
  template <typename T>
  void Take(T*& piece, int64_t elements) {
    piece = reinterpret_cast<T*>(next_);
    next_ += RoundUp(elements * int64_t(sizeof(T)), 64);
  }
  // An operand of `rows` rows.
  template <typename Products>
  void Take(Operand<Products>& operand, int64_t rows, const Layout& at) {
    Take(operand.dots, rows * at.padded / Products::kPer);
    operand.mix = operand.dots;
    if (Products::kPer > 1)
      Take(operand.mix, RoundUp(rows, Products::kPer) / Products::kPer * at.padded);
  }
  size_t BytesFrom(const std::byte* data) const { return size_t(next_ - data); }

 private:
  std::byte* next_;
};

}  // namespace trainyard::cpu
