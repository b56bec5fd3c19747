// Bound by multiply-adds: 4 P N + Q P FLOPs for a token and head, with chunks of Q tokens.
// state_chunk.h has the parts.

#include "kernels/state_space/state_scan.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state_space/state_chunk.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct Work {
  Work(const StateTask& at, std::byte* memory) {
    Pieces pieces(memory);
    in.Take(pieces, at);
    pieces.Take(c, at.longest * at.states);
    pieces.Take(b_across, at.dims.state * at.tokens);
    pieces.Take(scores, at.longest * at.tokens);
    pieces.Take(weights, at.longest * at.tokens);
    pieces.Take(y, at.longest * at.values);
    pieces.Take(states, at.heads * at.state_elements());
    bytes = pieces.BytesFrom(memory);
  }
  StateInputs<A> in;
  A* c;         // [tokens, N]
  A* b_across;  // [N, tokens]
  A* scores;    // C B^T [tokens, tokens]
  A* weights;   // The same, decayed, of one head.
  A* y;         // [tokens, P]
  A* states;    // Of the group's heads.
  size_t bytes;
};

// weights[t, s] = exp(c[t] - c[s]) scores[t, s] for the tokens s <= t of the document of t, and
// zeros for others up to the strip's end.
template <typename A>
void Decay(const StateChunk& chunk, const DocumentBorders& documents, const A* log, const A* scores,
           A* weights) {
  const StateTask& at = chunk.at;
  ForEachStrip(chunk, [&](int64_t i, int64_t rows) {
    const int64_t end = RoundUp(i + rows, kTileLanes);
    for (int64_t t = i; t < i + rows; ++t) {
      const A *from = scores + t * at.tokens, now = log[t];
      A* const to = weights + t * at.tokens;
      const int64_t begin = std::max<int64_t>(documents.BeginOf(chunk.row, t), 0);
      std::fill_n(to, begin, A(0));
#pragma omp simd
      for (int64_t s = begin; s < end; ++s) to[s] = s <= t ? from[s] * Exp(now - log[s]) : A(0);
    }
  });
}

template <typename T>
class Forward {
  using A = Accumulate<T>;

 public:
  Forward(const StateScanForwardArgs& args, const StateTask& at, std::byte* memory)
      : from_(args), at_(at), work_(at, memory), d_(args.d.as<A>()), y_(args.y.as<T>()) {
    const A* const start = args.start.data == nullptr ? nullptr : args.start.as<A>();
    for (int64_t h = 0; h < at.heads; ++h) {
      const int64_t place = at.part * at.dims.state_columns() + at.state(h);
      LoadState(at, start == nullptr ? nullptr : start + place, State(h));
    }
  }

  void Chunk(const StateChunk& chunk) {
    const int64_t n = at_.dims.state;
    work_.in.LoadB(from_, chunk);
    LoadMatrix(RowsOf(from_.xbc, chunk, at_.c(), n), at_.states, work_.c);
    TransposeMatrix(StateRows<A>{work_.in.b, at_.states, chunk.count, n}, at_.tokens,
                    work_.b_across);
    TokenProducts(chunk, n, work_.c, work_.b_across, work_.scores);
    for (int64_t h = 0; h < at_.heads; ++h) Head(chunk, h);
  }

 private:
  A* State(int64_t h) const { return work_.states + h * at_.state_elements(); }

  void Head(const StateChunk& chunk, int64_t h) {
    work_.in.LoadHead(from_, chunk, h);
    StateInputs<A>::Read(chunk, work_.c, State(h), work_.y);
    StateInputs<A>::ScaleRows(chunk, work_.in.steps.from_start, work_.y);
    Decay(chunk, from_.documents, work_.in.steps.log, work_.scores, work_.weights);
    MixEarlier(chunk, work_.weights, work_.in.v, at_.values, work_.y);
    Store(chunk, h);
    work_.in.Advance(chunk, State(h));
  }

  void Store(const StateChunk& chunk, int64_t h) const {
    const A d = d_[at_.first_head + h];
    for (int64_t t = 0; t < chunk.count; ++t) {
      const T* const x = from_.xbc + (chunk.row + t) * at_.dims.columns() + at_.x(h);
      T* const to = y_ + (chunk.row + t) * at_.dims.inner() + at_.x(h);
      const A* const y = work_.y + t * at_.values;
#pragma omp simd
      for (int64_t c = 0; c < at_.dims.head_dim; ++c) to[c] = T(y[c] + d * A(x[c]));
    }
  }

  const StateSource<T> from_;
  const StateTask at_;
  Work<A> work_;
  const A* d_;
  T* y_;
};

template <typename T>
void Run(Exec& exec, const StateScanForwardArgs& args) {
  const StateDims& dims = args.dims;
  const size_t bytes = Work<Accumulate<T>>(StateTask(dims, 0), nullptr).bytes;
  ForEachStateTask(exec, dims, args.xbc.shape.rows() / dims.sequence, bytes,
                   [&](const StateTask& at, std::byte* memory) {
                     Forward<T> forward(args, at, memory);
                     for (int64_t k = 0; k < at.chunks(); ++k) forward.Chunk(StateChunk(at, k));
                   });
}

}  // namespace

void StateScanForward(Exec& exec, const StateScanForwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) { Run<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
