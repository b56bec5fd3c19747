// A task computes the states at the starts of its chunks again, and then goes back through the
// chunks with the gradient G of the state at a chunk's end. With the letters of state_scan.h, V =
// step x, and within a chunk
//
//   W[t,s]  = exp(c[t] - c[s])                for s <= t of one document, and 0 for others
//   dV[s]   = sum_t W (C[t] . B[s]) dy[t]     + exp(c_end - c[s]) B[s] G
//   dB[s]   = sum_t W (dy[t] . V[s]) C[t]     + exp(c_end - c[s]) G V[s]
//   dC[t]   = sum_s W (dy[t] . V[s]) B[s]     + exp(c[t]) S_start dy[t]
//   dS_start = exp(c_end) G + sum_t exp(c[t]) C[t]^T dy[t]
//
// The gradient of a[u] sums what passes from tokens before u to u and later ones:
//
//   da[u] = sum_{s < u <= t} W (C[t] . B[s]) (dy[t] . V[s])       pairs of the chunk
//         + sum_{t >= u} exp(c[t]) C[t] S_start dy[t]^T           from the start to t
//         + sum_{s < u} exp(c_end - c[s]) B[s] G V[s]^T           from s to the end
//         + exp(c_end) <G, S_start>                               from the start to the end
//
// Bound by multiply-adds: 10 P N + 4 Q P FLOPs for a token and head, with chunks of Q tokens.

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state_space/state_chunk.h"
#include "kernels/cpu/state_space/state_gradients.h"
#include "kernels/state_space/state_scan.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct Work {
  Work(const StateTask& at, std::byte* memory) {
    Pieces pieces(memory);
    in.Take(pieces, at);
    for (A** rows : {&c, &db, &dc}) pieces.Take(*rows, at.longest * at.states);
    for (A** across : {&b_across, &c_across, &db_across, &dc_across, &of_head}) {
      pieces.Take(*across, at.dims.state * at.tokens);
    }
    for (A** square : {&scores, &products, &weights, &sums}) {
      pieces.Take(*square, at.longest * at.tokens);
    }
    for (A** rows : {&dy, &dv}) pieces.Take(*rows, at.longest * at.values);
    for (A** across : {&v_across, &dy_across}) pieces.Take(*across, at.dims.head_dim * at.tokens);
    for (A** vector : {&net, &ends, &dstep}) pieces.Take(*vector, at.tokens);
    pieces.Take(starts, at.chunks() * at.heads * at.state_elements());
    pieces.Take(states, at.heads * at.state_elements());
    bytes = pieces.BytesFrom(memory);
  }
  StateInputs<A> in;
  A *c, *db, *dc;            // [tokens, N]
  A *b_across, *c_across;    // [N, tokens]
  A *db_across, *dc_across;  // [N, tokens]: what comes from states.
  A* of_head;                // One head's part of dc_across.
  A *scores, *products;      // [tokens, tokens]: C B^T, dy V^T
  A *weights, *sums;         // Decayed scores; decayed products, summed over heads.
  A *dy, *dv, *v_across, *dy_across;
  A *net, *ends, *dstep;  // [tokens]: terms of da, and then da; gradient of steps.
  A* starts;              // The states at the start of all chunks.
  A* states;              // Of the group's heads: states, then their gradients.
  size_t bytes;
};

// to[r, t] *= scales[t]
template <typename A>
void ScaleColumns(const StateChunk& chunk, int64_t rows, const A* scales, A* to) {
  for (int64_t r = 0; r < rows; ++r, to += chunk.at.tokens) {
#pragma omp simd
    for (int64_t t = 0; t < chunk.count; ++t) to[t] *= scales[t];
  }
}

template <typename T>
class Backward {
  using A = Accumulate<T>;

 public:
  Backward(const StateScanBackwardArgs& args, const StateTask& at, std::byte* memory,
           HeadSums<A>* sums)
      : args_(args),
        from_(args),
        at_(at),
        work_(at, memory),
        sums_(sums + at.part * at.dims.heads + at.first_head) {}

  void Run() {
    const bool started = args_.start.data != nullptr;
    const A* const start = started ? args_.start.as<A>() + Place(at_.part) : nullptr;
    const int64_t chunks = at_.chunks();
    for (int64_t h = 0; h < at_.heads; ++h) {
      LoadState(at_, started ? start + at_.state(h) : nullptr, State(h));
    }
    for (int64_t k = 0; k < chunks; ++k) KeepStates(k);
    std::fill_n(work_.states, at_.heads * at_.state_elements(), A(0));
    for (int64_t k = chunks - 1; k >= 0; --k) Chunk(k);
    if (!started) return;
    A* const dstart = args_.dstart.as<A>() + Place(at_.part);
    for (int64_t h = 0; h < at_.heads; ++h) StoreState(at_, State(h), dstart + at_.state(h));
  }

 private:
  A* State(int64_t h) const { return work_.states + h * at_.state_elements(); }
  int64_t Place(int64_t row) const { return row * at_.dims.state_columns(); }
  A* Start(int64_t k, int64_t h) const {
    return work_.starts + (k * at_.heads + h) * at_.state_elements();
  }

  // Keeps the states at the start of chunk k, and moves them to its end.
  void KeepStates(int64_t k) {
    const StateChunk chunk(at_, k);
    const bool last = k + 1 == at_.chunks();
    if (!last) work_.in.LoadB(from_, chunk);
    for (int64_t h = 0; h < at_.heads; ++h) {
      std::copy_n(State(h), at_.state_elements(), Start(k, h));
      if (last) continue;
      work_.in.LoadHead(from_, chunk, h);
      work_.in.Advance(chunk, State(h));
    }
  }

  void Chunk(int64_t k) {
    const StateChunk chunk(at_, k);
    const int64_t n = at_.dims.state;
    work_.in.LoadB(from_, chunk);
    LoadMatrix(RowsOf(from_.xbc, chunk, at_.c(), n), at_.states, work_.c);
    const auto transpose = [&](const A* rows, A* across) {
      TransposeMatrix(StateRows<A>{rows, at_.states, chunk.count, n}, at_.tokens, across);
    };
    transpose(work_.in.b, work_.b_across);
    transpose(work_.c, work_.c_across);
    TokenProducts(chunk, n, work_.c, work_.b_across, work_.scores);
    std::fill_n(work_.sums, chunk.count * at_.tokens, A(0));
    for (A* across : {work_.db_across, work_.dc_across}) std::fill_n(across, n * at_.tokens, A(0));
    for (int64_t h = 0; h < at_.heads; ++h) Head(chunk, h, Start(k, h));
    for (A* rows : {work_.db, work_.dc}) std::fill_n(rows, chunk.count * at_.states, A(0));
    MixEarlier(chunk, work_.sums, work_.in.b, at_.states, work_.dc);
    MixLater(chunk, work_.sums, work_.c, at_.states, work_.db);
    T* const dxbc = args_.dxbc.as<T>();
    StoreGroupGradient(chunk, work_.db, work_.db_across, at_.b(), dxbc);
    StoreGroupGradient(chunk, work_.dc, work_.dc_across, at_.c(), dxbc);
  }

  void Head(const StateChunk& chunk, int64_t h, const A* start) {
    const int64_t inner = at_.dims.inner(), p = at_.dims.head_dim;
    const StateSteps<A>& steps = work_.in.steps;
    A* const gradient = State(h);
    work_.in.LoadHead(from_, chunk, h);
    LoadMatrix(StateRows<T>{args_.dy.as<T>() + chunk.row * inner + at_.x(h), inner, chunk.count, p},
               at_.values, work_.dy);
    const auto transpose = [&](const A* rows, A* across) {
      TransposeMatrix(StateRows<A>{rows, at_.values, chunk.count, p}, at_.tokens, across);
    };
    transpose(work_.in.v, work_.v_across);
    transpose(work_.dy, work_.dy_across);
    TokenProducts(chunk, p, work_.dy, work_.v_across, work_.products);
    Decay(chunk);
    StateInputs<A>::Read(chunk, work_.in.b, gradient, work_.dv);
    StateInputs<A>::ScaleRows(chunk, steps.to_end, work_.dv);
    for (int64_t t = 0; t < chunk.count; ++t) work_.ends[t] = Dot(work_.in.v, work_.dv, t);
    MixLater(chunk, work_.weights, work_.dy, at_.values, work_.dv);
    FromStates(chunk, start, gradient);
    A through = 0;
#pragma omp simd reduction(+ : through)
    for (int64_t i = 0; i < at_.state_elements(); ++i) through += gradient[i] * start[i];
    StoreInputs(chunk, h);
    SumDecays(chunk, through * steps.whole);
    StoreStepGradients(chunk, steps, StepTerms<A>{work_.net, work_.dstep}, args_.ddt.as<T>(),
                       sums_[h]);
    StateInputs<A>::ScaleRows(chunk, steps.from_start, work_.dy);
    StateInputs<A>::AddOuter(chunk, work_.c, work_.dy, steps.whole, gradient);
  }

  A Dot(const A* left, const A* right, int64_t t) const {
    const A *a = left + t * at_.values, *b = right + t * at_.values;
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < at_.values; ++c) sum += a[c] * b[c];
    return sum;
  }

  // Finds the decayed scores and products, and begins `net` with the chunk's pairs.
  void Decay(const StateChunk& chunk) {
    const A* const log = work_.in.steps.log;
    A* const net = work_.net;
    std::fill_n(net, at_.tokens, A(0));
    ForEachStrip(chunk, [&](int64_t i, int64_t rows) {
      const int64_t end = RoundUp(i + rows, kTileLanes);
      for (int64_t t = i; t < i + rows; ++t) {
        const A *scores = work_.scores + t * at_.tokens,
                *products = work_.products + t * at_.tokens;
        A *weights = work_.weights + t * at_.tokens, *sums = work_.sums + t * at_.tokens;
        const A now = log[t];
        A row = 0;
        const int64_t begin = std::max<int64_t>(from_.documents.BeginOf(chunk.row, t), 0);
        std::fill_n(weights, begin, A(0));
#pragma omp simd reduction(+ : row)
        for (int64_t s = begin; s < end; ++s) {
          const A decay = s <= t ? Exp(now - log[s]) : A(0);
          const A score = s <= t ? scores[s] : A(0), product = s <= t ? products[s] : A(0);
          const A weight = decay * score, pair = s < t ? weight * product : A(0);
          weights[s] = weight;
          sums[s] += decay * product;
          net[s] -= pair;
          row += pair;
        }
        net[t] += row;
      }
    });
  }

  // The parts of dB and dC that come from states, and the terms of `net` from the start.
  void FromStates(const StateChunk& chunk, const A* start, const A* gradient) {
    const int64_t p = at_.dims.head_dim, n = at_.dims.state;
    const auto product = [&](const A* state, const A* across, A* to, bool add) {
      TileProduct({.m = n,
                   .n = at_.tokens,
                   .k = p,
                   .a = state,
                   .a_row = at_.values,
                   .a_column = 1,
                   .b = across,
                   .b_row = at_.tokens,
                   .c = to,
                   .c_row = at_.tokens,
                   .add = add});
    };
    ScaleColumns(chunk, p, work_.in.steps.to_end, work_.v_across);
    product(gradient, work_.v_across, work_.db_across, /*add=*/true);
    ScaleColumns(chunk, p, work_.in.steps.from_start, work_.dy_across);
    product(start, work_.dy_across, work_.of_head, /*add=*/false);
    A* const net = work_.net;
    for (int64_t i = 0; i < n; ++i) {
      const A *c = work_.c_across + i * at_.tokens, *of_head = work_.of_head + i * at_.tokens;
      A* const sum = work_.dc_across + i * at_.tokens;
#pragma omp simd
      for (int64_t t = 0; t < at_.tokens; ++t) {
        sum[t] += of_head[t];
        net[t] += c[t] * of_head[t];
      }
    }
  }

  // Writes dx, and finds the gradient of the steps where they multiply x.
  void StoreInputs(const StateChunk& chunk, int64_t h) {
    const A d = args_.d.as<A>()[at_.first_head + h];
    const A* const step = work_.in.steps.step;
    for (int64_t t = 0; t < chunk.count; ++t) {
      const int64_t place = (chunk.row + t) * at_.dims.columns() + at_.x(h);
      const T* const x = from_.xbc + place;
      T* const dx = args_.dxbc.as<T>() + place;
      const A *dv = work_.dv + t * at_.values, *dy = work_.dy + t * at_.values;
      const A scale = step[t];
      A of_step = 0, of_d = 0;
#pragma omp simd reduction(+ : of_step, of_d)
      for (int64_t c = 0; c < at_.dims.head_dim; ++c) {
        of_step += A(x[c]) * dv[c];
        of_d += A(x[c]) * dy[c];
        dx[c] = T(scale * dv[c] + d * dy[c]);
      }
      work_.dstep[t] = of_step;
      sums_[h].d += of_d;
    }
  }

  // Turns the terms in `net` and `ends` into da.
  void SumDecays(const StateChunk& chunk, A through) {
    A later = 0;
    for (int64_t t = chunk.count - 1; t >= 0; --t) work_.net[t] = later += work_.net[t];
    A earlier = through;
    for (int64_t t = 0; t < chunk.count; ++t) {
      work_.net[t] += earlier;
      earlier += work_.ends[t];
    }
  }

  const StateScanBackwardArgs& args_;
  const StateSource<T> from_;
  const StateTask at_;
  Work<A> work_;
  HeadSums<A>* sums_;
};

template <typename T>
void Run(Exec& exec, const StateScanBackwardArgs& args) {
  using A = Accumulate<T>;
  const StateDims& dims = args.dims;
  const int64_t parts = args.xbc.shape.rows() / dims.sequence;
  HeadSums<A>* const sums = ReserveSums<A>(exec, dims, parts);
  ForEachStateTask(
      exec, dims, parts, Work<A>(StateTask(dims, 0), nullptr).bytes,
      [&](const StateTask& at, std::byte* memory) { Backward<T>(args, at, memory, sums).Run(); });
  StoreSums(sums, parts, &HeadSums<A>::dt_bias, args.ddt_bias, args.write_ddt_bias);
  StoreSums(sums, parts, &HeadSums<A>::a_log, args.da_log, args.write_da_log);
  StoreSums(sums, parts, &HeadSums<A>::d, args.dd, args.write_dd);
}

}  // namespace

void StateScanBackward(Exec& exec, const StateScanBackwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) { Run<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
