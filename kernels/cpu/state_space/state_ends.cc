// Bound by multiply-adds: forward 2 P N and backward 4 P N FLOPs for a token and head.
// state_chunk.h has the parts.

#include "kernels/state_space/state_ends.h"

#include <limits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state_space/state_chunk.h"
#include "kernels/cpu/state_space/state_gradients.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct ForwardWork {
  ForwardWork(const StateTask& at, std::byte* memory) {
    Pieces pieces(memory);
    in.Take(pieces, at);
    pieces.Take(states, at.heads * at.state_elements());
    pieces.Take(totals, at.heads);
    bytes = pieces.BytesFrom(memory);
  }
  StateInputs<A> in;
  A *states, *totals;
  size_t bytes;
};

// The place in the part where the document of the part's last token begins; negative: before.
template <typename T>
int64_t LastBegin(const StateSource<T>& from, const StateTask& at) {
  return from.documents.BeginOf(at.part * at.dims.sequence, at.dims.sequence - 1);
}

template <typename T>
void Forward(const StateEndsForwardArgs& args, const StateTask& at, std::byte* memory) {
  using A = Accumulate<T>;
  const StateSource<T> from(args);
  ForwardWork<A> work(at, memory);
  std::fill_n(work.states, at.heads * at.state_elements(), A(0));
  std::fill_n(work.totals, at.heads, A(0));
  for (int64_t k = 0; k < at.chunks(); ++k) {
    const StateChunk chunk(at, k);
    work.in.LoadB(from, chunk);
    for (int64_t h = 0; h < at.heads; ++h) {
      work.in.LoadHead(from, chunk, h);
      work.in.Advance(chunk, work.states + h * at.state_elements());
      work.totals[h] += work.in.steps.total;
    }
  }
  A* const ends = args.ends.as<A>() + at.part * args.ends.shape.back();
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  for (int64_t h = 0; h < at.heads; ++h) {
    StoreState(at, work.states + h * at.state_elements(), ends + at.state(h));
    ends[at.dims.state_columns() + at.first_head + h] =
        LastBegin(from, at) < 0 ? work.totals[h] : kNothing;
  }
}

template <typename A>
struct BackwardWork {
  BackwardWork(const StateTask& at, std::byte* memory) {
    Pieces pieces(memory);
    in.Take(pieces, at);
    pieces.Take(db, at.longest * at.states);
    pieces.Take(db_across, at.dims.state * at.tokens);
    pieces.Take(dv, at.longest * at.values);
    pieces.Take(v_across, at.dims.head_dim * at.tokens);
    for (A** vector : {&da, &dstep}) pieces.Take(*vector, at.tokens);
    pieces.Take(gradients, at.heads * at.state_elements());
    pieces.Take(heads, at.heads);
    bytes = pieces.BytesFrom(memory);
  }
  // A head's decay after the chunk, and the gradient of its whole decay up to the chunk.
  struct OfHead {
    A after, gradient;
  };
  StateInputs<A> in;
  A *db, *db_across, *dv, *v_across, *da, *dstep;
  A* gradients;
  OfHead* heads;
  size_t bytes;
};

// The gradient of the end reaches a token's values through the decay from there to the end. The
// gradient of a[u] is that of the whole decay, and sum_{s < u} exp(c_end - c[s]) B[s] G V[s]^T. If
// documents begin in the part, the end depends on the tokens of the last document alone.
template <typename T>
class Backward {
  using A = Accumulate<T>;

 public:
  Backward(const StateEndsBackwardArgs& args, const StateTask& at, std::byte* memory,
           HeadSums<A>* sums)
      : args_(args),
        from_(args),
        at_(at),
        work_(at, memory),
        last_begin_(LastBegin(from_, at)),
        sums_(sums + at.part * at.dims.heads + at.first_head) {}

  void Run() {
    const A* const dends = args_.dends.as<A>() + at_.part * args_.dends.shape.back();
    for (int64_t h = 0; h < at_.heads; ++h) {
      LoadState(at_, dends + at_.state(h), Gradient(h));
      const A of_whole = dends[at_.dims.state_columns() + at_.first_head + h];
      work_.heads[h] = {0, last_begin_ < 0 ? of_whole : A(0)};
    }
    for (int64_t k = 0; k < at_.chunks(); ++k) {
      for (int64_t h = 0; h < at_.heads; ++h) {
        work_.in.steps.Load(from_, StateChunk(at_, k), h);
        work_.heads[h].after += work_.in.steps.total;
      }
    }
    for (int64_t k = 0; k < at_.chunks(); ++k) Chunk(StateChunk(at_, k));
  }

 private:
  A* Gradient(int64_t h) const { return work_.gradients + h * at_.state_elements(); }

  void Chunk(const StateChunk& chunk) {
    work_.in.LoadB(from_, chunk);
    std::fill_n(work_.db_across, at_.dims.state * at_.tokens, A(0));
    for (int64_t h = 0; h < at_.heads; ++h) Head(chunk, h);
    std::fill_n(work_.db, chunk.count * at_.states, A(0));
    T* const dxbc = args_.dxbc.as<T>();
    StoreGroupGradient(chunk, work_.db, work_.db_across, at_.b(), dxbc);
    for (int64_t t = 0; t < chunk.count; ++t) {
      T* const row = dxbc + (chunk.row + t) * at_.dims.columns();
      std::fill_n(row + at_.c(), at_.dims.state, T(0.0f));
    }
  }

  void Head(const StateChunk& chunk, int64_t h) {
    const StateSteps<A>& steps = work_.in.steps;
    auto& [after, gradient] = work_.heads[h];
    work_.in.LoadHead(from_, chunk, h);
    after -= steps.total;
    const A decay = Exp(after);
#pragma omp simd
    for (int64_t t = 0; t < chunk.count; ++t) steps.to_end[t] *= decay;
    if (last_begin_ > chunk.first) {
      std::fill_n(steps.to_end, std::min(last_begin_ - chunk.first, chunk.count), A(0));
    }
    StateInputs<A>::Read(chunk, work_.in.b, Gradient(h), work_.dv);
    StateInputs<A>::ScaleRows(chunk, steps.to_end, work_.dv);
    for (int64_t t = 0; t < chunk.count; ++t) Token(chunk, h, t, gradient);
    StoreStepGradients(chunk, steps, StepTerms<A>{work_.da, work_.dstep}, args_.ddt.as<T>(),
                       sums_[h]);
    StateInputs<A>::ScaleRows(chunk, steps.to_end, work_.in.v);
    TransposeMatrix(StateRows<A>{work_.in.v, at_.values, chunk.count, at_.dims.head_dim},
                    at_.tokens, work_.v_across);
    TileProduct({.m = at_.dims.state,
                 .n = at_.tokens,
                 .k = at_.dims.head_dim,
                 .a = Gradient(h),
                 .a_row = at_.values,
                 .a_column = 1,
                 .b = work_.v_across,
                 .b_row = at_.tokens,
                 .c = work_.db_across,
                 .c_row = at_.tokens,
                 .add = true});
  }

  void Token(const StateChunk& chunk, int64_t h, int64_t t, A& gradient) {
    const int64_t place = (chunk.row + t) * at_.dims.columns() + at_.x(h);
    const T* const x = from_.xbc + place;
    T* const dx = args_.dxbc.as<T>() + place;
    const A* const dv = work_.dv + t * at_.values;
    const A step = work_.in.steps.step[t];
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < at_.dims.head_dim; ++c) {
      dot += A(x[c]) * dv[c];
      dx[c] = T(step * dv[c]);
    }
    work_.dstep[t] = dot;
    work_.da[t] = gradient;
    gradient += step * dot;
  }

  const StateEndsBackwardArgs& args_;
  const StateSource<T> from_;
  const StateTask at_;
  BackwardWork<A> work_;
  const int64_t last_begin_;
  HeadSums<A>* sums_;
};

template <typename T>
void Run(Exec& exec, const StateEndsForwardArgs& args) {
  const StateDims& dims = args.dims;
  ForEachStateTask(exec, dims, args.xbc.shape.rows() / dims.sequence,
                   ForwardWork<Accumulate<T>>(StateTask(dims, 0), nullptr).bytes,
                   [&](const StateTask& at, std::byte* memory) { Forward<T>(args, at, memory); });
}

template <typename T>
void Run(Exec& exec, const StateEndsBackwardArgs& args) {
  using A = Accumulate<T>;
  const StateDims& dims = args.dims;
  const int64_t parts = args.xbc.shape.rows() / dims.sequence;
  HeadSums<A>* const sums = ReserveSums<A>(exec, dims, parts);
  ForEachStateTask(
      exec, dims, parts, BackwardWork<A>(StateTask(dims, 0), nullptr).bytes,
      [&](const StateTask& at, std::byte* memory) { Backward<T>(args, at, memory, sums).Run(); });
  StoreSums(sums, parts, &HeadSums<A>::dt_bias, args.ddt_bias, args.write_ddt_bias);
  StoreSums(sums, parts, &HeadSums<A>::a_log, args.da_log, args.write_da_log);
}

}  // namespace

void StateEndsForward(Exec& exec, const StateEndsForwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) { Run<decltype(scalar)>(exec, args); });
}

void StateEndsBackward(Exec& exec, const StateEndsBackwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) { Run<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
