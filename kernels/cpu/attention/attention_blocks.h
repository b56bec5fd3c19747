// Blocks of attention scores: kKeys keys by a strip of kQueries queries. Finds the blocks and
// scores that exist, and computes the products that make and use them. Shared by
// attention_forward.cc and attention_backward.cc.

#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention/attention_operands.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/tile_product.h"

namespace trainyard::cpu {

constexpr int64_t kKeys = 64;  // Per block.

// The number of existing queries and keys in a block of scores.
struct Extent {
  int64_t queries;
  int64_t keys;
};

// The part's keys that the queries of a strip see.
struct Sight {
  Sight(const Layout& at, const Documents& documents, const Strip& strip);

  // Calls body(j, keys) for each block of keys that has a key that some query sees.
  template <typename Body>
  void ForEachBlock(Body&& body) const {
    for (int64_t j = begin; j < end; j += kKeys) body(j, std::min(kKeys, end - j));
  }
  // Sets the scores of keys that a query does not see to minus infinity, if ScoreBlock's `first`
  // does not express this.
  template <typename A>
  void Hide(int64_t j, int64_t keys, A* scores) const {
    if (!by_query || (j >= all_begin && j + keys <= all_end)) return;
    for (int64_t r = 0; r < keys; ++r, scores += kQueries) {
      const auto key = int32_t(j + r);
#pragma omp simd
      for (int64_t q = 0; q < kQueries; ++q) {
        const bool seen = (key >= begins[q]) & (key < ends[q]);
        scores[q] = seen ? scores[q] : -std::numeric_limits<A>::infinity();
      }
    }
  }

  int64_t begin = 0;  // The keys [begin, end) that some query sees; a multiple of kKeys.
  int64_t end;
  // Query q sees keys up to `diagonal` + q; or, if by_query, keys [begins[q], ends[q]).
  int64_t diagonal = std::numeric_limits<int32_t>::max();
  bool by_query = false;
  int64_t all_begin = 0, all_end = 0;  // The keys that every query sees.
  alignas(64) int32_t begins[kQueries], ends[kQueries];
};

// A strip of queries of one head, with what its queries see and drop.
struct HeadStrip {
  HeadStrip(const Layout& at, const Documents& documents, const Strip& of, const HeadDropout& drop)
      : strip(of), sees(at, documents, of), dropout(drop), part(at.part) {}

  // Multiplies the weights [keys, kQueries] of the keys from j on by 1 / (1 - p) or 0.
  template <typename A>
  void Drop(int64_t j, int64_t keys, A* weights) const {
    if (!dropout.active()) return;
    const A scale = A(dropout.key.scale);
    alignas(64) uint64_t first[kQueries];
    for (int64_t q = 0; q < kQueries; ++q) {
      first[q] = dropout.RowOf(part.q_position + strip.i + q) + uint64_t(part.kv_position + j);
    }
    for (int64_t r = 0; r < keys; ++r, weights += kQueries) {
#pragma omp simd
      for (int64_t q = 0; q < kQueries; ++q) {
        weights[q] = dropout.key.keeps(first[q] + uint64_t(r)) ? weights[q] * scale : A(0);
      }
    }
  }

  Strip strip;
  Sight sees;
  HeadDropout dropout;
  AttentionPart part;
};

// Calls body(layout, scratch) for each task: each key/value head of each sequence.
template <typename Core, typename Body>
void ForEachTask(Exec& exec, const Core& core, size_t bytes, const Body& body) {
  Context& context = ContextOf(exec);
  ParallelTasks(exec, core.sequences * core.dims.kv_heads, [&](int64_t task, int thread) {
    body(Layout(core.dims, core.part, task), context.scratch[thread].Reserve(bytes));
  });
}

// products[key, q] = <rows[key], strip[:, q]>
template <typename Products>
void Scores(int64_t keys, const Width& width, const typename Products::Element* dots,
            const typename Products::Element* strip, typename Products::Sum* products) {
  TileProduct(typename Products::Args{.m = keys,
                                      .n = kQueries,
                                      .k = RoundUp(width.d, Products::kPer) / Products::kPer,
                                      .a = dots,
                                      .a_row = width.padded / Products::kPer,
                                      .a_column = 1,
                                      .b = strip,
                                      .b_row = kQueries,
                                      .c = products,
                                      .c_row = kQueries,
                                      .add = false});
}

// sums[q, :] += sum over keys of weights[key, q] rows[key, :]
template <typename Products>
void MixKeys(const Extent& extent, const Width& width, const typename Products::Element* weights,
             const typename Products::Element* mix, typename Products::Sum* sums) {
  TileProduct(typename Products::Args{.m = extent.queries,
                                      .n = width.padded,
                                      .k = RoundUp(extent.keys, Products::kPer) / Products::kPer,
                                      .a = weights,
                                      .a_row = 1,
                                      .a_column = kQueries,
                                      .b = mix,
                                      .b_row = width.padded,
                                      .c = sums,
                                      .c_row = width.padded,
                                      .add = true});
}

// sums[key, :] += sum over queries of weights[key, q] rows[q, :]
template <typename Products>
void MixQueries(const Extent& extent, const Width& width, const typename Products::Element* weights,
                const typename Products::Element* mix, typename Products::Sum* sums) {
  TileProduct(typename Products::Args{.m = extent.keys,
                                      .n = width.padded,
                                      .k = RoundUp(extent.queries, Products::kPer) / Products::kPer,
                                      .a = weights,
                                      .a_row = kQueries / Products::kPer,
                                      .a_column = 1,
                                      .b = mix,
                                      .b_row = width.padded,
                                      .c = sums,
                                      .c_row = width.padded,
                                      .add = true});
}

}  // namespace trainyard::cpu
