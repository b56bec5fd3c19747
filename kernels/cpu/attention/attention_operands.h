// The operands of attention's products: the places of a task's heads, and copies of them in the
// forms that TileProduct takes. Plain products multiply f32 or f64 values one by one; paired
// products multiply bf16 values two by two (bf16_pairs.h). A product sums over the head dim
// (scores), or over keys or queries (mixtures).

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/attention/attention_core.h"
#include "kernels/cpu/attention/attention_softmax.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/products/bf16_pairs.h"

namespace trainyard::cpu {

template <typename A>
struct PlainProducts {
  using Sum = A;
  using Value = A;    // An operand's value.
  using Element = A;  // `kPer` values that are neighbours in the summed dimension.
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

// The width of query and key heads, or of value heads.
struct Width {
  explicit Width(int64_t elements) : d(elements), padded(RoundUp(elements, kTileLanes)) {}
  int64_t d;
  int64_t padded;  // d rounded up to whole vectors.
};

// Queries [i, i + count) of a part.
struct Strip {
  int64_t i;
  int64_t count;
};

// The places of a task's heads and rows.
struct Layout {
  Layout(const AttentionDims& dims, const AttentionPart& rows, int64_t task)
      : part(rows),
        key(dims.head_dim),
        value(dims.value_dim),
        heads(dims.heads),
        group(dims.heads / dims.kv_heads),
        batch(task / dims.kv_heads),
        kv_head(task % dims.kv_heads),
        first_head(kv_head * group),
        q_first(batch * dims.sequence + part.q_begin),
        kv_first(batch * part.KeyRows(dims.sequence) + part.kv_begin),
        lse_first(batch * dims.heads * dims.sequence + part.q_begin),
        lse_row(dims.sequence),
        scale(dims.scale),
        soft_cap(dims.soft_cap) {}
  // Rows [i, i + count) of the part, in a query head or a tensor of the same form.
  template <typename T>
  Rows<T> Queries(const Heads<T>& from, const Width& width, int64_t head,
                  const Strip& strip) const {
    return {from.data + (q_first + strip.i) * from.row + head * width.d, from.row, strip.count};
  }
  // The part's rows in the key/value head.
  template <typename T>
  Rows<T> Keys(const Heads<T>& from, const Width& width) const {
    return {from.data + kv_first * from.row + kv_head * width.d, from.row, part.kv_rows};
  }
  int64_t Statistic(int64_t head, int64_t i) const { return lse_first + head * lse_row + i; }

  AttentionPart part;
  Width key, value;
  int64_t heads, group, batch, kv_head, first_head;
  int64_t q_first, kv_first, lse_first, lse_row;
  double scale, soft_cap;
};

// Rows in the two forms of operands. `dots` [rows, padded / kPer] is for sums along the head dim,
// `mix` [rows / kPer, padded] for sums over rows. With plain products both are the same memory.
// Padded with zeroes.
template <typename Products>
struct Operand {
  using Element = typename Products::Element;
  Element* dots;
  Element* mix;

  // The elements from row r on; r must be a multiple of kPer.
  const Element* DotsAt(int64_t r, const Width& width) const {
    return dots + r * width.padded / Products::kPer;
  }
  const Element* MixAt(int64_t r, const Width& width) const {
    return mix + r / Products::kPer * width.padded;
  }
};

// The form `dots`: to[r, c] = from[r, c].
template <typename Value, typename T>
void LoadDots(const Rows<const T>& from, const Width& width, Value* to) {
  for (int64_t r = 0; r < from.count; ++r, to += width.padded) {
    const T* row = from.data + r * from.stride;
    if constexpr (std::is_same_v<T, Value>) {
      std::copy_n(row, width.d, to);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < width.d; ++c) to[c] = Value(row[c]);
    }
    std::fill(to + width.d, to + width.padded, Value(0));
  }
}

template <typename Products, typename T>
void LoadDots(const Rows<const T>& from, const Width& width, const Operand<Products>& to) {
  LoadDots(from, width, reinterpret_cast<typename Products::Value*>(to.dots));
}
template <typename Products, typename T>
void LoadMix(const Rows<const T>& from, const Width& width, const Operand<Products>& to) {
  if constexpr (Products::kPer == 2) {
    PairAcross(reinterpret_cast<const bf16*>(to.dots), from.count, width.padded, to.mix);
  }
}

// to[c, q] = from[q, c] for the `count` loaded rows of a strip; zeroes for the other queries.
template <typename Products>
void Transpose(const typename Products::Element* dots, int64_t count, const Width& width,
               typename Products::Element* to) {
  const int64_t columns = RoundUp(width.d, Products::kPer) / Products::kPer;
  const int64_t row = width.padded / Products::kPer;
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

// The block of weights [keys, kQueries] as the left operand of a mixture that sums over keys, or
// over queries. `to` is used for pairs only.
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

// Takes operands from a task's scratch memory, too.
class OperandPieces : public Pieces {
 public:
  using Pieces::Pieces;
  using Pieces::Take;
  // Takes an operand of `rows` rows.
  template <typename Products>
  void Take(Operand<Products>& operand, int64_t rows, const Width& width) {
    Take(operand.dots, rows * width.padded / Products::kPer);
    operand.mix = operand.dots;
    if (Products::kPer > 1)
      Take(operand.mix, RoundUp(rows, Products::kPer) / Products::kPer * width.padded);
  }
};

}  // namespace trainyard::cpu
