// The state space of kernels/state_space/state_scan.h as a plain recurrence in f64, with its
// adjoint: what the kernels must agree with.

#pragma once

#include <cmath>

#include "kernels/state_space/state_ends.h"
#include "kernels/state_space/state_scan.h"
#include "tests/kernels/call.h"
#include "tests/kernels/state_space/documents.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {

// Sizes of a test: parts of a sequence, and the state space.
struct StateSize {
  int64_t parts;
  StateDims dims;
  std::vector<int64_t> begins = {};  // As in DocumentPositions. Empty: no tensor says.
  int64_t tokens() const { return parts * dims.sequence; }
};

// Operands, and gradients of all of them.
struct StateInputs {
  Array<double> xbc, dt, dt_bias, a_log, d, start;
  Array<int32_t> positions = {};
};

inline StateInputs MakeStateInputs(const StateSize& size) {
  const StateDims& dims = size.dims;
  return {Normal<double>({size.tokens(), dims.columns()}, 1),
          Normal<double>({size.tokens(), dims.heads}, 2),
          Normal<double>({dims.heads}, 3),
          Normal<double>({dims.heads}, 4),
          Normal<double>({dims.heads}, 5),
          Normal<double>({size.parts, dims.state_columns()}, 6),
          DocumentPositions(size.tokens(), dims.sequence, size.begins)};
}

template <typename T>
StateInputs RoundedTo(const StateInputs& in) {
  using A = Accumulate<T>;
  return {RoundedTo<T>(in.xbc),
          RoundedTo<T>(in.dt),
          RoundedTo<A>(in.dt_bias),
          RoundedTo<A>(in.a_log),
          RoundedTo<A>(in.d),
          RoundedTo<A>(in.start),
          in.positions};
}

// One head of one part, token by token.
class HeadRecurrence {
 public:
  HeadRecurrence(const StateInputs& in, const StateDims& dims, int64_t part, int64_t head)
      : in_(in), dims_(dims), part_(part), head_(head) {
    const int64_t size = dims.state * dims.head_dim;
    states_.assign(size_t((dims.sequence + 1) * size), 0);
    for (int64_t i = 0; i < size; ++i) {
      states_[size_t(i)] = in.start.v[size_t(StartPlace(i))];
    }
    for (int64_t t = 0; t < dims.sequence; ++t) {
      for (int64_t n = 0; n < dims.state; ++n) {
        for (int64_t p = 0; p < dims.head_dim; ++p) {
          state(t + 1, n, p) =
              Decay(t) * state(t, n, p) + xbc(t, B() + n) * Step(t) * xbc(t, X() + p);
        }
      }
    }
  }

  double Y(int64_t t, int64_t p) {
    double sum = in_.d.v[size_t(head_)] * xbc(t, X() + p);
    for (int64_t n = 0; n < dims_.state; ++n) sum += xbc(t, C() + n) * state(t + 1, n, p);
    return sum;
  }
  double End(int64_t n, int64_t p) { return state(dims_.sequence, n, p); }
  double WholeDecay() const {
    double sum = 0;
    for (int64_t t = 0; t < dims_.sequence; ++t) sum += std::log(Decay(t));
    return sum;
  }

  // Adds the gradients of sum of dy y to `out`, and the sizes of the terms that a_log's sums to
  // `a_log_terms`, of the shape of a_log.
  void AddGradients(const Array<double>& dy, StateInputs& out, Array<double>& a_log_terms) {
    const int64_t size = dims_.state * dims_.head_dim;
    std::vector<double> g(size_t(size), 0);  // Of the state after token t.
    const auto grad = [&](int64_t t, int64_t column) -> double& {
      return out.xbc.v[size_t((Row(t)) * dims_.columns() + column)];
    };
    const size_t h = size_t(head_);
    for (int64_t t = dims_.sequence - 1; t >= 0; --t) {
      double da = 0, dstep = 0;
      for (int64_t p = 0; p < dims_.head_dim; ++p) {
        const double d = dy.v[size_t(Row(t) * dims_.inner() + X() + p)], x = xbc(t, X() + p);
        out.d.v[h] += d * x;
        grad(t, X() + p) += d * in_.d.v[h];
        for (int64_t n = 0; n < dims_.state; ++n) {
          double& gnp = g[size_t(n * dims_.head_dim + p)];
          grad(t, C() + n) += d * state(t + 1, n, p);
          gnp += d * xbc(t, C() + n);
          grad(t, B() + n) += gnp * Step(t) * x;
          grad(t, X() + p) += gnp * Step(t) * xbc(t, B() + n);
          dstep += gnp * xbc(t, B() + n) * x;
          gnp *= Decay(t);
          da += gnp * state(t, n, p);
        }
      }
      out.a_log.v[h] += da * A(t);
      a_log_terms.v[h] += std::abs(da * A(t));
      const double soft = Soft(t);
      if (soft < dims_.min_step || soft > dims_.max_step) continue;
      const double raw = (dstep - da * std::exp(in_.a_log.v[h])) / (1 + std::exp(-Raw(t)));
      out.dt.v[size_t(Row(t) * dims_.heads + head_)] += raw;
      out.dt_bias.v[h] += raw;
    }
    for (int64_t i = 0; i < size; ++i) out.start.v[size_t(StartPlace(i))] += g[size_t(i)];
  }

 private:
  int64_t X() const { return head_ * dims_.head_dim; }
  int64_t B() const { return dims_.inner() + head_ / (dims_.heads / dims_.groups) * dims_.state; }
  int64_t C() const { return B() + dims_.groups * dims_.state; }
  int64_t Row(int64_t t) const { return part_ * dims_.sequence + t; }
  int64_t StartPlace(int64_t i) const {
    return part_ * dims_.state_columns() + head_ * dims_.state * dims_.head_dim + i;
  }
  double xbc(int64_t t, int64_t column) const {
    return in_.xbc.v[size_t(Row(t) * dims_.columns() + column)];
  }
  double& state(int64_t t, int64_t n, int64_t p) {
    return states_[size_t((t * dims_.state + n) * dims_.head_dim + p)];
  }
  double Raw(int64_t t) const {
    return in_.dt.v[size_t(Row(t) * dims_.heads + head_)] + in_.dt_bias.v[size_t(head_)];
  }
  double Soft(int64_t t) const { return std::log(1 + std::exp(Raw(t))); }
  double Step(int64_t t) const { return std::clamp(Soft(t), dims_.min_step, dims_.max_step); }
  double A(int64_t t) const { return -std::exp(in_.a_log.v[size_t(head_)]) * Step(t); }
  double Decay(int64_t t) const {
    const bool begins = !in_.positions.v.empty() && in_.positions.v[size_t(Row(t))] == 0;
    return begins ? 0 : std::exp(A(t));
  }

  const StateInputs& in_;
  const StateDims dims_;
  const int64_t part_, head_;
  std::vector<double> states_;  // [L + 1, N, P]
};

// Calls body(recurrence, part, head) for each head of each part.
template <typename Body>
void ForEachHead(const StateInputs& in, const StateSize& size, const Body& body) {
  for (int64_t part = 0; part < size.parts; ++part) {
    for (int64_t head = 0; head < size.dims.heads; ++head) {
      HeadRecurrence recurrence(in, size.dims, part, head);
      body(recurrence, part, head);
    }
  }
}

inline Array<double> PlainScan(const StateInputs& in, const StateSize& size) {
  const StateDims& dims = size.dims;
  auto y = Zeros<double>({size.tokens(), dims.inner()});
  ForEachHead(in, size, [&](HeadRecurrence& head, int64_t part, int64_t h) {
    for (int64_t t = 0; t < dims.sequence; ++t) {
      for (int64_t p = 0; p < dims.head_dim; ++p) {
        const int64_t row = part * dims.sequence + t;
        y.v[size_t(row * dims.inner() + h * dims.head_dim + p)] = head.Y(t, p);
      }
    }
  });
  return y;
}

struct PlainGradients : StateInputs {
  Array<double> a_log_terms;  // The sum of the sizes of the terms of a_log's gradient.
};

inline PlainGradients PlainScanGradients(const StateInputs& in, const Array<double>& dy,
                                         const StateSize& size) {
  StateInputs out{Zeros<double>(in.xbc.shape),     Zeros<double>(in.dt.shape),
                  Zeros<double>(in.dt_bias.shape), Zeros<double>(in.a_log.shape),
                  Zeros<double>(in.d.shape),       Zeros<double>(in.start.shape)};
  auto terms = Zeros<double>(in.a_log.shape);
  ForEachHead(in, size,
              [&](HeadRecurrence& head, int64_t, int64_t) { head.AddGradients(dy, out, terms); });
  return {out, terms};
}

template <typename T>
struct StateOperands {
  using A = Accumulate<T>;
  explicit StateOperands(const StateInputs& in)
      : xbc(Converted<T>(in.xbc)),
        dt(Converted<T>(in.dt)),
        dt_bias(Converted<A>(in.dt_bias)),
        a_log(Converted<A>(in.a_log)),
        d(Converted<A>(in.d)),
        start(Converted<A>(in.start)),
        positions(in.positions) {}
  Array<T> xbc, dt;
  Array<A> dt_bias, a_log, d, start;
  Array<int32_t> positions;
};

// The kernel's y. `started`: with in.start, otherwise from zeros.
template <typename T>
Array<T> Scan(const StateInputs& in, const StateSize& size, bool started = true, int threads = 2) {
  const StateDims& dims = size.dims;
  const StateOperands<T> o(in);
  auto y = Poison<T>({size.tokens(), dims.inner()});
  StateScanForwardArgs args{.xbc = o.xbc,
                            .dt = o.dt,
                            .dt_bias = o.dt_bias,
                            .a_log = o.a_log,
                            .d = o.d,
                            .dims = dims,
                            .y = y,
                            .document_positions = o.positions};
  if (started) args.start = o.start;
  Call(args, threads);
  return y;
}

template <typename T>
struct StateGradients {
  using A = Accumulate<T>;
  StateGradients(const StateInputs& in, A parameters)
      : xbc(Poison<T>(in.xbc.shape)),
        dt(Poison<T>(in.dt.shape)),
        dt_bias(Filled<A>(in.dt_bias.shape, parameters)),
        a_log(dt_bias),
        d(dt_bias),
        start(Poison<A>(in.start.shape)) {}
  Array<T> xbc, dt;
  Array<A> dt_bias, a_log, d, start;
};

// The kernel's gradients. Adds those of parameters to `before`, or overwrites NaN.
template <typename T>
StateGradients<T> ScanBackward(const StateInputs& in, const Array<double>& dy64,
                               const StateSize& size, bool started = true, int threads = 2,
                               std::optional<double> before = {}) {
  using A = Accumulate<T>;
  const StateOperands<T> o(in);
  const auto dy = Converted<T>(dy64);
  StateGradients<T> out(in, A(before.value_or(NAN)));
  const Write write = before.has_value() ? Write::kAdd : Write::kOverwrite;
  StateScanBackwardArgs args{.dy = dy,
                             .xbc = o.xbc,
                             .dt = o.dt,
                             .dt_bias = o.dt_bias,
                             .a_log = o.a_log,
                             .d = o.d,
                             .dims = size.dims,
                             .dxbc = out.xbc,
                             .ddt = out.dt,
                             .ddt_bias = out.dt_bias,
                             .da_log = out.a_log,
                             .dd = out.d,
                             .write_ddt_bias = write,
                             .write_da_log = write,
                             .write_dd = write,
                             .document_positions = o.positions};
  if (started) args.start = o.start, args.dstart = out.start;
  Call(args, threads);
  return out;
}

}  // namespace trainyard::testing
