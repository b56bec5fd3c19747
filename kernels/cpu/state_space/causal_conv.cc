// Taps are rounded up to 4 or 8 by zeros before the first one, so that the loops over taps unroll.
// Channels are processed in blocks, whose weights stay in the nearest cache while rows go by.

#include "kernels/state_space/causal_conv.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kBlock = 256;  // Channels.
constexpr int64_t kRun = 64;     // Rows whose gradients of weights are summed apart.

// The operands of both directions.
template <typename T>
struct Conv {
  template <typename Args>
  explicit Conv(const Args& args)
      : x(args.x.template as<T>()),
        weight(args.weight.template as<T>()),
        bias(args.bias.template as<T>()),
        tail(args.tail.data == nullptr ? nullptr : args.tail.template as<T>()),
        channels(args.x.shape.back()),
        taps(args.weight.shape.back()),
        sequence(args.sequence),
        documents(BordersOf(args.document_positions)) {}

  // Whether the part's row `position` reads the row `before` rows earlier.
  bool Reads(int64_t part, int64_t position, int64_t before) const {
    return position - before >= documents.BeginOf(part * sequence, position);
  }

  const T *x, *weight, *bias, *tail;
  int64_t channels, taps, sequence;
  DocumentBorders documents;
};

// The weights of a block of channels, by taps, and a row of zeros.
template <typename T, int kTaps>
struct Block {
  using A = Accumulate<T>;
  Block(const Conv<T>& conv, int64_t first, int64_t count) : first(first), count(count) {
    std::fill_n(&weight[0][0], kTaps * kBlock, A(0));
    std::fill_n(zeros, kBlock, T(0.0f));
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t k = 0; k < conv.taps; ++k) {
        weight[kTaps - conv.taps + k][c] = A(conv.weight[(first + c) * conv.taps + k]);
      }
      bias[c] = A(conv.bias[first + c]);
    }
  }

  // The block's channels of the rows that the taps of row `position` of a part read.
  void RowsAt(const Conv<T>& conv, int64_t part, int64_t position, const T* (&rows)[kTaps]) const {
    for (int64_t k = 0; k < kTaps; ++k) {
      const int64_t from = position - kTaps + 1 + k, in_tail = from + conv.taps - 1;
      rows[k] = !conv.Reads(part, position, kTaps - 1 - k) ? zeros
                : from >= 0 ? conv.x + (part * conv.sequence + from) * conv.channels + first
                : in_tail >= 0 && conv.tail != nullptr
                    ? conv.tail + (part * (conv.taps - 1) + in_tail) * conv.channels + first
                    : zeros;
    }
  }
  [[gnu::always_inline]] A Sum(const T* const (&rows)[kTaps], int64_t c) const {
    A s = bias[c];
#pragma GCC unroll 8
    for (int k = 0; k < kTaps; ++k) s += weight[k][c] * A(rows[k][c]);
    return s;
  }

  int64_t first, count;
  A weight[kTaps][kBlock], bias[kBlock];
  T zeros[kBlock];
};

template <typename T, int kTaps>
void Forward(const Exec& exec, const CausalConvForwardArgs& args) {
  using A = Accumulate<T>;
  const Conv<T> conv(args);
  T* const y_data = args.y.as<T>();
  ParallelRows(exec, args.x.shape.rows(), 2 * conv.channels, [=](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < conv.channels; first += kBlock) {
      const Block<T, kTaps> block(conv, first, std::min(kBlock, conv.channels - first));
      for (int64_t t = begin; t < end; ++t) {
        const T* rows[kTaps];
        block.RowsAt(conv, t / conv.sequence, t % conv.sequence, rows);
        T* y = y_data + t * conv.channels + first;
#pragma omp simd
        for (int64_t c = 0; c < block.count; ++c) {
          const A s = block.Sum(rows, c);
          y[c] = T(s * Sigmoid(s));
        }
      }
    }
  });
}

// The gradients of a block of channels, row by row.
template <typename T, int kTaps>
class BlockGradient {
  using A = Accumulate<T>;

 public:
  BlockGradient(const CausalConvBackwardArgs& args, int64_t first, int64_t count)
      : conv_(args), block_(conv_, first, count), dy_(args.dy.as<T>()), dx_(args.dx.as<T>()) {
    dtail_ = args.dtail.data == nullptr ? nullptr : args.dtail.as<T>();
    std::fill_n(zeros_, kBlock, A(0));
    std::fill_n(&sums_[0][0], (kTaps + 1) * kBlock, A(0));
  }

  void Part(int64_t part) {
    std::fill_n(&ds_[0][0], kTaps * kBlock, A(0));
    std::fill_n(&run_[0][0], (kTaps + 1) * kBlock, A(0));
    // The gradient of a row is complete kTaps - 1 rows later.
    for (int64_t t = 0; t < conv_.sequence + kTaps - 1; ++t) {
      A* const ds = ds_[t % kTaps];
      if (t < conv_.sequence) {
        Row(part, t, ds);
      } else {
        std::fill_n(ds, kBlock, A(0));
      }
      WriteInput(part, t);
      if (t % kRun == kRun - 1 || t + 1 == conv_.sequence) AddRun();
    }
  }

  void Store(const CausalConvBackwardArgs& args) const {
    const auto store = [](A* to, A sum, Write write) {
      *to = (write == Write::kAdd ? *to : A(0)) + sum;
    };
    A *const dweight = args.dweight.as<A>(), *const dbias = args.dbias.as<A>();
    for (int64_t c = 0; c < block_.count; ++c) {
      const int64_t channel = block_.first + c;
      for (int64_t k = 0; k < conv_.taps; ++k) {
        store(dweight + channel * conv_.taps + k, sums_[kTaps - conv_.taps + k][c],
              args.write_dweight);
      }
      store(dbias + channel, sums_[kTaps][c], args.write_dbias);
    }
  }

 private:
  void Row(int64_t part, int64_t t, A* ds) {
    const T* rows[kTaps];
    block_.RowsAt(conv_, part, t, rows);
    const T* dy = dy_ + (part * conv_.sequence + t) * conv_.channels + block_.first;
#pragma omp simd
    for (int64_t c = 0; c < block_.count; ++c) {
      const A sum = block_.Sum(rows, c), s = Sigmoid(sum);
      const A d = A(dy[c]) * s * (A(1) + sum * (A(1) - s));
      ds[c] = d;
      run_[kTaps][c] += d;
#pragma GCC unroll 8
      for (int k = 0; k < kTaps; ++k) run_[k][c] += d * A(rows[k][c]);
    }
  }

  // Writes dx of row t - kTaps + 1 of the part, which may be a row of the tail.
  void WriteInput(int64_t part, int64_t t) const {
    const int64_t row = t - kTaps + 1, in_tail = row + conv_.taps - 1;
    if (row < 0 && (in_tail < 0 || dtail_ == nullptr)) return;
    T* const dx = (row >= 0 ? dx_ + (part * conv_.sequence + row) * conv_.channels
                            : dtail_ + (part * (conv_.taps - 1) + in_tail) * conv_.channels) +
                  block_.first;
    const A* ds[kTaps];
    for (int64_t k = 0; k < kTaps; ++k) {
      // Of rows that are not of the part, ds_ has zeros.
      const bool reads =
          t - k < 0 || t - k >= conv_.sequence || conv_.Reads(part, t - k, kTaps - 1 - k);
      ds[k] = reads ? ds_[(t - k + kTaps) % kTaps] : zeros_;
    }
#pragma omp simd
    for (int64_t c = 0; c < block_.count; ++c) {
      A sum = 0;
#pragma GCC unroll 8
      for (int k = 0; k < kTaps; ++k) sum += block_.weight[k][c] * ds[k][c];
      dx[c] = T(sum);
    }
  }

  void AddRun() {
    A *const to = &sums_[0][0], *const run = &run_[0][0];
#pragma omp simd
    for (int64_t i = 0; i < (kTaps + 1) * kBlock; ++i) to[i] += run[i];
    std::fill_n(run, (kTaps + 1) * kBlock, A(0));
  }

  const Conv<T> conv_;
  const Block<T, kTaps> block_;
  const T* dy_;
  T *dx_, *dtail_;
  A zeros_[kBlock], ds_[kTaps][kBlock];                 // Of the last rows.
  A run_[kTaps + 1][kBlock], sums_[kTaps + 1][kBlock];  // The bias is last.
};

template <typename T, int kTaps>
void Backward(const Exec& exec, const CausalConvBackwardArgs& args) {
  const int64_t channels = args.x.shape.back(), rows = args.x.shape.rows();
  ParallelRanges(exec, channels, rows * kTaps, 64, [&args, rows](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      BlockGradient<T, kTaps> gradient(args, first, std::min(kBlock, end - first));
      for (int64_t part = 0; part < rows / args.sequence; ++part) gradient.Part(part);
      gradient.Store(args);
    }
  });
}

// Calls body(scalar, taps) with a type and a number of taps, rounded up.
template <typename Args, typename Body>
void Dispatch(const Args& args, const Body& body) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    if (args.weight.shape.back() <= 4) return body(scalar, std::integral_constant<int, 4>());
    body(scalar, std::integral_constant<int, int(kMaxConvTaps)>());
  });
}

}  // namespace

void CausalConvForward(Exec& exec, const CausalConvForwardArgs& args) {
  Dispatch(args, [&](auto scalar, auto taps) {
    Forward<decltype(scalar), decltype(taps)::value>(exec, args);
  });
}

void CausalConvBackward(Exec& exec, const CausalConvBackwardArgs& args) {
  Dispatch(args, [&](auto scalar, auto taps) {
    Backward<decltype(scalar), decltype(taps)::value>(exec, args);
  });
}

}  // namespace trainyard::cpu
