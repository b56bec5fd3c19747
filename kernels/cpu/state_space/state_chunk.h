// The parts of which state_scan.cc, state_scan_backward.cc and state_ends.cc consist: the operands
// of one chunk of tokens in the form that TileProduct takes, and their products.
//
// A task is one group of heads in one part of a sequence. It works through the part's chunks in
// order. Matrices in scratch memory have rows of whole vectors, padded with zeros.

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/products/tile_product.h"
#include "kernels/state_space/state_scan.h"

namespace trainyard::cpu {

// The operands that all state kernels share.
template <typename T>
struct StateSource {
  template <typename Args>
  explicit StateSource(const Args& args)
      : xbc(args.xbc.template as<T>()),
        dt(args.dt.template as<T>()),
        dt_bias(args.dt_bias.template as<Accumulate<T>>()),
        a_log(args.a_log.template as<Accumulate<T>>()),
        documents(BordersOf(args.document_positions)),
        dims(args.dims) {}

  const T *xbc, *dt;
  const Accumulate<T>*dt_bias, *a_log;
  DocumentBorders documents;
  StateDims dims;
};

// Longer chunks have more products of pairs of tokens, and fewer states to go through.
inline constexpr int64_t kStateChunk = 64;

// A task, and the sizes of its matrices.
struct StateTask {
  StateTask(const StateDims& d, int64_t task)
      : dims(d),
        part(task / d.groups),
        group(task % d.groups),
        heads(d.heads / d.groups),
        first_head(group * heads),
        values(RoundUp(d.head_dim, kTileLanes)),
        states(RoundUp(d.state, kTileLanes)),
        longest(std::min(d.sequence, kStateChunk)),
        tokens(RoundUp(longest, kTileLanes)) {}

  // The columns of xbc.
  int64_t x(int64_t h) const { return (first_head + h) * dims.head_dim; }
  int64_t b() const { return dims.inner() + group * dims.state; }
  int64_t c() const { return b() + dims.groups * dims.state; }
  // The place of a head's state in a row of states.
  int64_t state(int64_t h) const { return (first_head + h) * dims.state * dims.head_dim; }
  int64_t state_elements() const { return dims.state * values; }  // In scratch memory.
  int64_t chunks() const { return (dims.sequence + kStateChunk - 1) / kStateChunk; }

  StateDims dims;
  int64_t part, group;
  int64_t heads, first_head;  // Of the group.
  int64_t values, states;     // Head dim and state dim, rounded up to whole vectors.
  int64_t longest, tokens;    // Tokens of the longest chunk, and rounded up.
};

// Tokens [first, first + count) of the task's part, which are the rows from `row` on of all tokens.
// The task must outlive the chunk.
struct StateChunk {
  StateChunk(const StateTask& task, int64_t index)
      : at(task),
        first(index * kStateChunk),
        count(std::min(kStateChunk, at.dims.sequence - first)),
        row(at.part * at.dims.sequence + first) {}
  const StateTask& at;
  int64_t first, count, row;
};

// Calls body(task, memory) for each task, in the code for the widest vectors that the CPU has.
template <typename Body>
void ForEachStateTask(Exec& exec, const StateDims& dims, int64_t parts, size_t bytes,
                      const Body& body) {
  Context& context = ContextOf(exec);
  ParallelTasks(exec, parts * dims.groups, [&](int64_t task, int thread) {
    std::byte* const memory = context.scratch[size_t(thread)].Reserve(bytes);
    CallRange([&](int64_t i, int64_t) { body(StateTask(dims, i), memory); }, task, task + 1);
  });
}

// Rows of a matrix that are `stride` apart.
template <typename T>
struct StateRows {
  const T* data;
  int64_t stride, rows, columns;
};

// The columns of xbc, from `column` on, of a chunk's tokens.
template <typename T>
StateRows<T> RowsOf(const T* xbc, const StateChunk& chunk, int64_t column, int64_t columns) {
  const int64_t stride = chunk.at.dims.columns();
  return {xbc + chunk.row * stride + column, stride, chunk.count, columns};
}

// to[r, c] = from[r, c], and zeros for columns up to `padded`.
template <typename T, typename A>
void LoadMatrix(const StateRows<T>& from, int64_t padded, A* to) {
  const T* row = from.data;
  for (int64_t r = 0; r < from.rows; ++r, row += from.stride, to += padded) {
#pragma omp simd
    for (int64_t c = 0; c < from.columns; ++c) to[c] = A(row[c]);
    std::fill(to + from.columns, to + padded, A(0));
  }
}

// to[c, r] = from[r, c], and zeros for rows up to `padded`. Reads a few rows at a time, so that
// they stay in the nearest cache.
template <typename A>
void TransposeMatrix(const StateRows<A>& from, int64_t padded, A* to) {
  constexpr int64_t kRows = 16;
  for (int64_t first = 0; first < padded; first += kRows) {
    const int64_t count = std::clamp<int64_t>(from.rows - first, 0, kRows);
    const A* const block = from.data + first * from.stride;
    for (int64_t c = 0; c < from.columns; ++c) {
      A* const out = to + c * padded + first;
      if (count == kRows) {
#pragma GCC unroll 16
        for (int64_t r = 0; r < kRows; ++r) out[r] = block[r * from.stride + c];
      } else {
        for (int64_t r = 0; r < kRows; ++r) out[r] = r < count ? block[r * from.stride + c] : A(0);
      }
    }
  }
}

// The steps and decays of one head in a chunk.
template <typename A>
struct StateSteps {
  void Take(Pieces& pieces, const StateTask& at) {
    pieces.Take(step, at.tokens), pieces.Take(slope, at.tokens), pieces.Take(log, at.tokens);
    pieces.Take(from_start, at.tokens), pieces.Take(to_end, at.tokens);
  }

  // Head h of the group.
  template <typename T>
  void Load(const StateSource<T>& from, const StateChunk& chunk, int64_t h) {
    const StateTask& at = chunk.at;
    const int64_t count = chunk.count;
    head = at.first_head + h;
    const T* const dt = from.dt + chunk.row * at.dims.heads + head;
    const A bias = from.dt_bias[head], least = A(at.dims.min_step), most = A(at.dims.max_step);
    for (int64_t t = 0; t < count; ++t) step[t] = A(dt[t * at.dims.heads]) + bias;
#pragma omp simd
    for (int64_t t = 0; t < count; ++t) {
      const A soft = Softplus(step[t]);
      slope[t] = soft < least || soft > most ? A(0) : Sigmoid(step[t]);
      step[t] = std::min(std::max(soft, least), most);
    }
    decay = -Exp(from.a_log[head]);
    A sum = 0;
    for (int64_t t = 0; t < count; ++t) log[t] = sum += decay * step[t];
    std::fill(log + count, log + at.tokens, sum);
    total = sum;
#pragma omp simd
    for (int64_t t = 0; t < count; ++t) {
      from_start[t] = Exp(log[t]);
      to_end[t] = Exp(sum - log[t]);
    }
    whole = Exp(sum);
    if (from.documents.positions != nullptr) EndAtBorders(from.documents, chunk);
  }

  A *step, *slope;  // The step, and its derivative by dt.
  A* log;           // c of state_scan.h.
  // exp(c) and exp(c_end - c): 0 if a document begins between the token and that end of the chunk.
  A *from_start, *to_end;
  int64_t head;
  A decay;  // -exp(a_log)
  A total;  // c_end
  A whole;  // exp(c_end), and 0 if a document begins in the chunk.

 private:
  void EndAtBorders(const DocumentBorders& documents, const StateChunk& chunk) {
    for (int64_t t = 0; t < chunk.count; ++t) {
      if (documents.BeginOf(chunk.row, t) >= 0) from_start[t] = 0;
    }
    const int64_t last = documents.BeginOf(chunk.row, chunk.count - 1);
    if (last < 0) return;
    std::fill_n(to_end, last, A(0));
    whole = 0;
  }
};

// B of a chunk, and V = step x of one of its heads.
template <typename A>
struct StateInputs {
  void Take(Pieces& pieces, const StateTask& at) {
    steps.Take(pieces, at);
    pieces.Take(b, at.longest * at.states);
    pieces.Take(v, at.longest * at.values);
  }
  template <typename T>
  void LoadB(const StateSource<T>& from, const StateChunk& chunk) {
    const StateTask& at = chunk.at;
    LoadMatrix(RowsOf(from.xbc, chunk, at.b(), at.dims.state), at.states, b);
  }
  template <typename T>
  void LoadHead(const StateSource<T>& from, const StateChunk& chunk, int64_t h) {
    const StateTask& at = chunk.at;
    steps.Load(from, chunk, h);
    LoadMatrix(RowsOf(from.xbc, chunk, at.x(h), at.dims.head_dim), at.values, v);
    ScaleRows(chunk, steps.step, v);
  }
  // m[t, :] *= scales[t]
  static void ScaleRows(const StateChunk& chunk, const A* scales, A* m) {
    const int64_t columns = chunk.at.values;
    for (int64_t t = 0; t < chunk.count; ++t, m += columns) {
      const A scale = scales[t];
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) m[c] *= scale;
    }
  }
  // Moves a state to the end of the chunk. Leaves v multiplied by to_end.
  void Advance(const StateChunk& chunk, A* state) {
    ScaleRows(chunk, steps.to_end, v);
    AddOuter(chunk, b, v, steps.whole, state);
  }
  // state = scale state + sum_t left[t]^T right[t], for left [t, N] and right [t, P].
  static void AddOuter(const StateChunk& chunk, const A* left, const A* right, A scale, A* state) {
    const StateTask& at = chunk.at;
#pragma omp simd
    for (int64_t i = 0; i < at.state_elements(); ++i) state[i] *= scale;
    TileProduct({.m = at.dims.state,
                 .n = at.values,
                 .k = chunk.count,
                 .a = left,
                 .a_row = 1,
                 .a_column = at.states,
                 .b = right,
                 .b_row = at.values,
                 .c = state,
                 .c_row = at.values,
                 .add = true});
  }
  // y[t, :] = rows[t, :] state, for rows [t, N].
  static void Read(const StateChunk& chunk, const A* rows, const A* state, A* y) {
    const StateTask& at = chunk.at;
    TileProduct({.m = chunk.count,
                 .n = at.values,
                 .k = at.dims.state,
                 .a = rows,
                 .a_row = at.states,
                 .a_column = 1,
                 .b = state,
                 .b_row = at.values,
                 .c = y,
                 .c_row = at.values,
                 .add = false});
  }

  StateSteps<A> steps;
  A* b;  // [tokens, N]
  A* v;  // [tokens, P]
};

// Copies a state [N, P] from a tensor to scratch memory. Null stands for zeros.
template <typename A>
void LoadState(const StateTask& at, const A* from, A* to) {
  if (from == nullptr) {
    std::fill_n(to, at.state_elements(), A(0));
  } else {
    const int64_t p = at.dims.head_dim;
    LoadMatrix(StateRows<A>{from, p, at.dims.state, p}, at.values, to);
  }
}
template <typename A>
void StoreState(const StateTask& at, const A* from, A* to) {
  for (int64_t n = 0; n < at.dims.state; ++n) {
    std::copy_n(from + n * at.values, at.dims.head_dim, to + n * at.dims.head_dim);
  }
}

// The products of a chunk [t, s] exist for s <= t. They are computed in strips of this many tokens,
// so that most of those that do not exist are left out.
inline constexpr int64_t kStateStrip = 32;

// Calls body(i, rows) for each strip of a chunk's tokens.
template <typename Body>
void ForEachStrip(const StateChunk& chunk, const Body& body) {
  for (int64_t i = 0; i < chunk.count; i += kStateStrip) {
    body(i, std::min(kStateStrip, chunk.count - i));
  }
}

// products[t, s] = left[t] . right[s], for the strips' s; `right` is transposed: [k, tokens].
template <typename A>
void TokenProducts(const StateChunk& chunk, int64_t k, const A* left, const A* right, A* products) {
  const int64_t left_row = RoundUp(k, kTileLanes), row = chunk.at.tokens;
  ForEachStrip(chunk, [&](int64_t i, int64_t rows) {
    TileProduct({.m = rows,
                 .n = RoundUp(i + rows, kTileLanes),
                 .k = k,
                 .a = left + i * left_row,
                 .a_row = left_row,
                 .a_column = 1,
                 .b = right,
                 .b_row = row,
                 .c = products + i * row,
                 .c_row = row,
                 .add = false});
  });
}

// y[t, :] += sum_{s <= t} weights[t, s] rows[s, :], where weights are 0 for s > t.
template <typename A>
void MixEarlier(const StateChunk& chunk, const A* weights, const A* rows, int64_t width, A* y) {
  const int64_t row = chunk.at.tokens;
  ForEachStrip(chunk, [&](int64_t i, int64_t count) {
    TileProduct({.m = count,
                 .n = width,
                 .k = i + count,
                 .a = weights + i * row,
                 .a_row = row,
                 .a_column = 1,
                 .b = rows,
                 .b_row = width,
                 .c = y + i * width,
                 .c_row = width,
                 .add = true});
  });
}

// y[s, :] += sum_{t >= s} weights[t, s] rows[t, :]. Reads weights within strips and below alone.
template <typename A>
void MixLater(const StateChunk& chunk, const A* weights, const A* rows, int64_t width, A* y) {
  const int64_t row = chunk.at.tokens;
  ForEachStrip(chunk, [&](int64_t i, int64_t count) {
    TileProduct({.m = count,
                 .n = width,
                 .k = chunk.count - i,
                 .a = weights + i * row + i,
                 .a_row = 1,
                 .a_column = row,
                 .b = rows + i * width,
                 .b_row = width,
                 .c = y + i * width,
                 .c_row = width,
                 .add = true});
  });
}

}  // namespace trainyard::cpu
