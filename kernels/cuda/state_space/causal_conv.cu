// Bound by memory: forward reads and writes each element once, backward reads two elements and
// writes one. A thread takes a pack of channels and goes down a run of rows, with the last rows in
// registers. In backward it goes on beyond its run until the gradients of its rows are complete.
// Taps are rounded up to 4 or 8 by zeros before the first one. Where a document begins, all earlier
// rows leave the window.

#include <bit>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/row.h"
#include "kernels/state_space/causal_conv.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kRunRows = 64;

template <typename T>
struct Conv {
  const T* x;
  const T* weight;
  const T* bias;
  const T* tail;  // May be null.
  int64_t channels, taps, sequence, parts;
  DocumentBorders documents;

  // The part's row at `position`, which may be negative: a row of the tail, or null for zeros.
  __device__ const T* Row(int64_t part, int64_t position) const {
    if (position >= sequence) return nullptr;
    if (position >= 0) return x + (part * sequence + position) * channels;
    const int64_t in_tail = position + taps - 1;
    if (in_tail < 0 || tail == nullptr) return nullptr;
    return tail + (part * (taps - 1) + in_tail) * channels;
  }
  // Whether a document begins with the part's row at `position`, which may be negative.
  __device__ bool Begins(int64_t part, int64_t position) const {
    if (documents.positions == nullptr || position >= sequence) return false;
    return documents.BeginOf(part * sequence, position < 0 ? 0 : position) == position;
  }
};

template <typename T, int kCount, int kTaps>
struct Channels {
  using A = Accumulate<T>;
  A weight[kTaps][kCount], bias[kCount];

  __device__ Channels(const Conv<T>& conv, int64_t first) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      bias[n] = A(conv.bias[first + n]);
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        const int64_t tap = conv.taps - kTaps + k;
        weight[k][n] = tap >= 0 ? A(conv.weight[(first + n) * conv.taps + tap]) : A(0);
      }
    }
  }
};

// A window of the last kTaps rows: element [k] is the row of tap k.
template <typename A, int kCount, int kTaps>
struct Window {
  A rows[kTaps][kCount] = {};

  // Makes room for a row at the end.
  __device__ void Shift() {
#pragma unroll
    for (int k = 0; k + 1 < kTaps; ++k) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) rows[k][n] = rows[k + 1][n];
    }
  }
  template <typename T>
  __device__ void Push(const T* row) {
    Shift();
    if (row == nullptr) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) rows[kTaps - 1][n] = 0;
      return;
    }
    const auto pack = LoadPack<T, kCount>(row);
#pragma unroll
    for (int n = 0; n < kCount; ++n) rows[kTaps - 1][n] = A(pack.v[n]);
  }
  __device__ void Clear() {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) rows[k][n] = 0;
    }
  }
  // sum_k weight[k] rows[k]
  __device__ A Sum(const A (&weight)[kTaps][kCount], int n) const {
    A sum = 0;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) sum += weight[k][n] * rows[k][n];
    return sum;
  }
};

// The place of a thread: a pack of channels in a run of rows of a part.
struct RunPlace {
  int64_t first, run, part, begin, end;
  __device__ RunPlace(int64_t channels, int64_t sequence, int count) {
    const int64_t packs = channels / count, blocks = (packs + kThreads - 1) / kThreads;
    const int64_t runs = (sequence + kRunRows - 1) / kRunRows;
    first = (blockIdx.x % blocks * kThreads + threadIdx.x) * count;
    run = blockIdx.x / blocks;
    part = run / runs;
    begin = run % runs * kRunRows;
    end = begin + kRunRows < sequence ? begin + kRunRows : sequence;
  }
};

template <typename T, int kCount, int kTaps>
__global__ void __launch_bounds__(kThreads) ForwardKernel(Conv<T> conv, T* y) {
  using A = Accumulate<T>;
  const RunPlace at(conv.channels, conv.sequence, kCount);
  if (at.first >= conv.channels) return;
  const Channels<T, kCount, kTaps> of(conv, at.first);
  Window<A, kCount, kTaps> window;
  const auto push = [&](int64_t position) {
    if (conv.Begins(at.part, position)) window.Clear();
    const T* const row = conv.Row(at.part, position);
    window.Push(row == nullptr ? row : row + at.first);
  };
  for (int64_t t = at.begin - kTaps + 1; t < at.begin; ++t) push(t);
  for (int64_t t = at.begin; t < at.end; ++t) {
    push(t);
    Pack<T, kCount> out;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const A s = of.bias[n] + window.Sum(of.weight, n);
      out.v[n] = T(s * Sigmoid(s));
    }
    StoreRow(y + (at.part * conv.sequence + t) * conv.channels + at.first, out);
  }
}

template <typename T>
struct Gradients {
  const T* dy;
  T* dx;
  T* dtail;             // May be null.
  Accumulate<T>* sums;  // [runs, (K+1) C]: of weights [C, K], then of biases [C]
};

// The gradients of rows [begin, end), and of the tail for the part's first run. The gradient of a
// row is complete kTaps - 1 rows later, so the thread reads that many rows of the next run; it sums
// gradients of weights over its own rows alone.
template <typename T, int kCount, int kTaps>
__global__ void __launch_bounds__(kThreads) BackwardKernel(Conv<T> conv, Gradients<T> out) {
  using A = Accumulate<T>;
  const RunPlace at(conv.channels, conv.sequence, kCount);
  if (at.first >= conv.channels) return;
  const Channels<T, kCount, kTaps> of(conv, at.first);
  Window<A, kCount, kTaps> window, ds;
  A sums[kTaps][kCount] = {}, bias[kCount] = {};
  // Bit i: a document begins i rows before the last one. Bits of the rows that read the oldest one.
  unsigned borders = 0;
  const auto push = [&](int64_t position) {
    const bool begins = conv.Begins(at.part, position);
    borders = (borders << 1 | unsigned(begins)) & ((1u << (kTaps - 1)) - 1);
    if (begins) window.Clear();
    const T* const row = conv.Row(at.part, position);
    window.Push(row == nullptr ? row : row + at.first);
  };
  // With a tail, the first run also has the gradients of the rows before it.
  for (int64_t t = at.begin - kTaps + 1; t < at.begin; ++t) push(t);
  for (int64_t t = at.begin; t < at.end + kTaps - 1; ++t) {
    push(t);
    ds.Shift();
    const bool inside = t < conv.sequence;
    Pack<T, kCount> dy = {};
    if (inside) {
      dy = LoadPack<T, kCount>(out.dy + (at.part * conv.sequence + t) * conv.channels + at.first);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const A sum = of.bias[n] + window.Sum(of.weight, n), s = Sigmoid(sum);
      const A d = inside ? A(dy.v[n]) * s * (A(1) + sum * (A(1) - s)) : A(0);
      ds.rows[kTaps - 1][n] = d;
      if (t >= at.end) continue;
      bias[n] += d;
#pragma unroll
      for (int k = 0; k < kTaps; ++k) sums[k][n] += d * window.rows[k][n];
    }
    const int64_t row = t - kTaps + 1, in_tail = row + conv.taps - 1;
    if (row < at.begin && (at.begin > 0 || in_tail < 0 || out.dtail == nullptr)) continue;
    // Rows of later documents, which are those of the taps before this one, do not read the row.
    const int first_tap = 32 - __clz(int(borders));
    Pack<T, kCount> dx;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      A sum = 0;
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        if (k >= first_tap) sum += of.weight[k][n] * ds.rows[kTaps - 1 - k][n];
      }
      dx.v[n] = T(sum);
    }
    T* const to = row >= 0 ? out.dx + (at.part * conv.sequence + row) * conv.channels
                           : out.dtail + (at.part * (conv.taps - 1) + in_tail) * conv.channels;
    StoreRow(to + at.first, dx);
  }
  A* const of_run = out.sums + at.run * (conv.taps + 1) * conv.channels;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    of_run[conv.taps * conv.channels + at.first + n] = bias[n];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const int64_t tap = conv.taps - kTaps + k;
      if (tap >= 0) of_run[(at.first + n) * conv.taps + tap] = sums[k][n];
    }
  }
}

// Adds the sums of runs to the gradients of weights and biases.
template <typename A>
struct AddSums {
  A* dweight;
  A* dbias;
  int64_t weights;
  Write write_dweight, write_dbias;
  __device__ void operator()(int64_t, int64_t c, A sum) const {
    const bool of_bias = c >= weights;
    A* const to = of_bias ? dbias + (c - weights) : dweight + c;
    const Write write = of_bias ? write_dbias : write_dweight;
    *to = (write == Write::kAdd ? *to : A(0)) + sum;
  }
};

template <typename T, typename Args>
Conv<T> ConvOf(const Args& args) {
  return {.x = args.x.template as<T>(),
          .weight = args.weight.template as<T>(),
          .bias = args.bias.template as<T>(),
          .tail = args.tail.data == nullptr ? nullptr : args.tail.template as<T>(),
          .channels = args.x.shape.back(),
          .taps = args.weight.shape.back(),
          .sequence = args.sequence,
          .parts = args.x.shape.rows() / args.sequence,
          .documents = BordersOf(args.document_positions)};
}

template <typename T>
int64_t Runs(const Conv<T>& conv) {
  return conv.parts * CeilDiv(conv.sequence, kRunRows);
}
template <typename T>
Grid GridOf(const Conv<T>& conv, int count) {
  return {Runs(conv) * CeilDiv(conv.channels / count, kThreads), kThreads};
}

}  // namespace

void CausalConvForward(Exec& exec, const CausalConvForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Conv<T> conv = ConvOf<T>(args);
    T* const y = args.y.as<T>();
    if (conv.taps > 4) {
      return Launch(exec, GridOf(conv, 1), ForwardKernel<T, 1, kMaxConvTaps>, conv, y);
    }
    if (CanPack<T>(conv.channels, conv.x, conv.tail, y)) {
      return Launch(exec, GridOf(conv, kPackOf<T>), ForwardKernel<T, kPackOf<T>, 4>, conv, y);
    }
    Launch(exec, GridOf(conv, 1), ForwardKernel<T, 1, 4>, conv, y);
  });
}

void CausalConvBackward(Exec& exec, const CausalConvBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const Conv<T> conv = ConvOf<T>(args);
    const int64_t columns = (conv.taps + 1) * conv.channels;
    const Gradients<T> out = {.dy = args.dy.as<T>(),
                              .dx = args.dx.as<T>(),
                              .dtail = args.dtail.data == nullptr ? nullptr : args.dtail.as<T>(),
                              .sums = ScratchOf<A>(exec, Runs(conv) * columns)};
    if (conv.taps > 4) {
      Launch(exec, GridOf(conv, 1), BackwardKernel<T, 1, kMaxConvTaps>, conv, out);
    } else if (CanPack<T>(conv.channels, conv.x, conv.tail, out.dy, out.dx, out.dtail)) {
      Launch(exec, GridOf(conv, kPackOf<T>), BackwardKernel<T, kPackOf<T>, 4>, conv, out);
    } else {
      Launch(exec, GridOf(conv, 1), BackwardKernel<T, 1, 4>, conv, out);
    }
    constexpr int kWidth = 8;
    SumRuns(exec, out.sums, RowRuns{Runs(conv), columns, Runs(conv)}, kWidth,
            AddSums<A>{.dweight = args.dweight.as<A>(),
                       .dbias = args.dbias.as<A>(),
                       .weights = conv.taps * conv.channels,
                       .write_dweight = args.write_dweight,
                       .write_dbias = args.write_dbias});
  });
}

}  // namespace trainyard::cuda
