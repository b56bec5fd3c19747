// Forms of attention beside the plain causal one, and their computation by the kernels of a
// backend, whole or in parts. For attention_forms_test.cc and attention_warp_test.cc.

#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_part.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {

struct Form {
  std::string name;
  int64_t batch, sequence, heads, kv_heads, head_dim, value_dim;
  AttentionMask mask = {};
  double soft_cap = 0;
  bool sinks = false;
  int64_t documents = 0;  // In each sequence; 0: no tensor says.
  double scale = 0.4;
  double dropout = 0;
  // Elements beside a row's queries. Keys and values share their rows.
  int64_t beside = 3;

  int64_t rows() const { return batch * sequence; }
  AttentionDims dims() const {
    return {.sequence = sequence,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .value_dim = value_dim,
            .scale = scale,
            .soft_cap = soft_cap,
            .mask = mask};
  }
};

inline void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

template <typename T>
struct Tensors {
  Array<T> q, kv, sinks, dout;

  template <typename To>
  Tensors<To> As() const {
    return {Converted<To>(q), Converted<To>(kv), Converted<To>(sinks), Converted<To>(dout)};
  }
};

template <typename T>
struct Outputs {
  Array<T> out;
  Array<Accumulate<T>> lse;
  Array<T> dq, dkv;  // As q and kv.
  Array<Accumulate<T>> dsinks;
};

// Where each row's document begins and ends: documents of different lengths, other ones in each
// sequence.
struct Bounds {
  explicit Bounds(const Form& form)
      : begins(Zeros<int32_t>({form.batch, form.sequence})), ends(begins), samples(begins) {
    for (size_t row = 0; row < samples.v.size(); ++row) {
      samples.v[row] = int32_t(5 - int64_t(row) / form.sequence);
    }
    for (int64_t b = 0; b < form.batch && form.documents > 0; ++b) {
      int64_t begin = 0;
      for (int64_t n = 1; n <= form.documents; ++n) {
        const bool last = n == form.documents;
        const int64_t end =
            last ? form.sequence
                 : form.sequence * n * (n + 1 + b) / ((form.documents + 1 + b) * form.documents);
        for (int64_t i = begin; i < end; ++i) {
          begins.v[b * form.sequence + i] = int32_t(begin);
          ends.v[b * form.sequence + i] = int32_t(end);
        }
        begin = std::max(begin, end);
      }
    }
  }
  Array<int32_t> begins, ends;
  Array<int32_t> samples;  // The numbers of the sequences in the global batch.
};

// Of dropout: this rank's heads are not the first ones of all ranks, nor the last.
inline constexpr StepState kState{.step = 3, .seed = 5};
inline AttentionDropout DropoutOf(const Form& form) {
  return {.place = {.probability = form.dropout, .stream = 77},
          .first_head = 2,
          .heads = form.heads + 3,
          .sequence = 2 * form.sequence};
}
inline Tensors<double> Random(const Form& form) {
  const int64_t kv = form.kv_heads * (form.head_dim + form.value_dim);
  return {Normal<double>({form.rows(), form.heads * form.head_dim + form.beside}, 1),
          Normal<double>({form.rows(), kv}, 2), Normal<double>({form.heads}, 3),
          Normal<double>({form.rows(), form.heads * form.value_dim}, 4)};
}

// The arguments that all calls share, whole or in parts.
template <typename Args, typename T>
Args ArgsOf(const Form& form, const Tensors<T>& in, const Bounds& bounds) {
  const AttentionDims dims = form.dims();
  Args args = {};
  args.q = {in.q, 0, dims.query_columns()};
  args.k = {in.kv, 0, dims.key_columns()};
  args.v = {in.kv, dims.key_columns(), dims.value_columns()};
  args.dims = dims;
  if (form.documents > 0) {
    args.document_begins = bounds.begins;
    // A causal mask needs no ends.
    if (!form.mask.causal) args.document_ends = bounds.ends;
  }
  if (form.dropout > 0) {
    args.samples = bounds.samples, args.state = &kState, args.dropout = DropoutOf(form);
  }
  return args;
}

template <typename O, typename Args>
void TakeGradients(const AttentionDims& dims, Array<O>& dq, Array<O>& dkv, Args& args) {
  args.dq = {dq, 0, dims.query_columns()};
  args.dk = {dkv, 0, dims.key_columns()};
  args.dv = {dkv, dims.key_columns(), dims.value_columns()};
}

template <typename T>
Outputs<T> Poisoned(const Form& form, const Tensors<T>& in) {
  using A = Accumulate<T>;
  return {Poison<T>(in.dout.shape), Poison<A>({form.batch, form.heads, form.sequence}),
          Poison<T>(in.q.shape), Poison<T>(in.kv.shape), Poison<A>({form.heads})};
}

// Calls the kernels of one backend, which is the tested one if none is given.
class Kernels {
 public:
  explicit Kernels(int threads = 2, const Backend* backend = nullptr)
      : threads_(threads), backend_(backend) {}

  template <typename Args>
  void operator()(const Args& args) const {
    if (backend_ == nullptr) return Call(args, threads_);
    Check(args);
    Exec exec = backend_->NewExec(Threads(threads_));
    backend_->kernel<Args>()(exec, args);
  }

 private:
  int threads_;
  const Backend* backend_;
};

template <typename T>
void ComputeForward(const Form& form, const Tensors<T>& in, const Kernels& call, Outputs<T>& o) {
  const Bounds bounds(form);
  auto args = ArgsOf<AttentionForwardArgs>(form, in, bounds);
  args.out = o.out, args.lse = o.lse;
  if (form.sinks) args.sinks = in.sinks;
  call(args);
}

template <typename T>
void ComputeBackward(const Form& form, const Tensors<T>& in, const Kernels& call, Outputs<T>& o) {
  const Bounds bounds(form);
  auto args = ArgsOf<AttentionBackwardArgs>(form, in, bounds);
  args.out = o.out, args.lse = o.lse, args.dout = in.dout;
  TakeGradients(form.dims(), o.dq, o.dkv, args);
  if (form.sinks) args.sinks = in.sinks, args.dsinks = o.dsinks;
  call(args);
}

template <typename T>
Outputs<T> Compute(const Form& form, const Tensors<T>& in, const Kernels& call = Kernels()) {
  auto o = Poisoned(form, in);
  ComputeForward(form, in, call, o);
  ComputeBackward(form, in, call, o);
  return o;
}

// The columns of the queries; what is beside them must be as it was.
template <typename T>
std::vector<T> QueryColumns(const Form& form, const Array<T>& dq) {
  std::vector<T> columns;
  const int64_t width = form.heads * form.head_dim, row = width + form.beside;
  for (int64_t i = 0; i < dq.shape.elements(); ++i) {
    if (i % row < width) {
      columns.push_back(dq.v[i]);
    } else {
      EXPECT_TRUE(std::isnan(Accumulate<T>(dq.v[i]))) << "beside the queries, at " << i;
    }
  }
  return columns;
}

// Expects the results of a computation in T to be those in f64 of the same inputs.
template <typename T>
void ExpectAgrees(const Form& form, const Outputs<T>& got, const Outputs<double>& want,
                  DType dtype = DTypeOf<T>::value) {
  const int64_t reduction =
      form.sequence * form.heads / form.kv_heads + form.head_dim + form.value_dim;
  const double tolerance = Tolerance(dtype, reduction);
  ExpectClose(Converted<double>(got.out).v, want.out.v, tolerance);
  ExpectClose(Converted<double>(got.lse).v, want.lse.v, Tolerance(DType::kF32, reduction));
  ExpectClose(QueryColumns(form, Converted<double>(got.dq)), QueryColumns(form, want.dq),
              tolerance);
  ExpectClose(Converted<double>(got.dkv).v, want.dkv.v, tolerance);
  if (form.sinks) ExpectClose(Converted<double>(got.dsinks).v, want.dsinks.v, tolerance);
}

// A part of a form's attention. Parts that are `own` overwrite results and have the sinks. One of
// them comes before the other parts with the same queries or keys.
struct FormPart {
  AttentionPart part;
  bool own;
};
// The part between rows that stand at their own positions.
inline FormPart PartOf(const Form& form, int64_t q_begin, int64_t q_rows, int64_t kv_begin,
                       int64_t kv_rows) {
  return {{.q_begin = q_begin,
           .q_rows = q_rows,
           .kv_begin = kv_begin,
           .kv_rows = kv_rows,
           .mask = form.mask,
           .q_position = q_begin,
           .kv_position = kv_begin},
          q_begin == kv_begin && q_rows == kv_rows};
}

// The sequence in `chunks` chunks of queries over as many of keys, of which many see nothing of
// each other. The chunks of keys of one chunk of queries begin with its own.
inline std::vector<FormPart> Chunks(const Form& form, int64_t chunks) {
  std::vector<FormPart> parts;
  const int64_t rows = form.sequence / chunks;
  for (int64_t step = 0; step < chunks; ++step) {
    for (int64_t queries = 0; queries < chunks; ++queries) {
      const int64_t keys = (queries + step) % chunks;
      parts.push_back(PartOf(form, queries * rows, rows, keys * rows, rows));
    }
  }
  return parts;
}

// Computes attention in parts. `call` is given the arguments of each part's kernels, and calls
// them.
template <typename T, typename CallPart>
Outputs<Accumulate<T>> Parts(const Form& form, const Tensors<T>& in,
                             const std::vector<FormPart>& parts, const CallPart& call) {
  using A = Accumulate<T>;
  const Bounds bounds(form);
  auto o = Poisoned(form, in.template As<A>());
  for (const auto& [part, own] : parts) {
    auto args = ArgsOf<AttentionPartForwardArgs>(form, in, bounds);
    args.part = part, args.out = o.out, args.lse = o.lse;
    args.write = own ? Write::kOverwrite : Write::kAdd;
    if (form.sinks && own) args.sinks = in.sinks;
    call(args);
  }
  const auto out = Converted<T>(o.out);
  Write write_dsinks = Write::kOverwrite;
  for (const auto& [part, own] : parts) {
    auto args = ArgsOf<AttentionPartBackwardArgs>(form, in, bounds);
    args.part = part, args.out = out, args.lse = o.lse, args.dout = in.dout;
    TakeGradients(form.dims(), o.dq, o.dkv, args);
    args.write_dq = args.write_dkv = own ? Write::kOverwrite : Write::kAdd;
    if (form.sinks && own) {
      args.sinks = in.sinks, args.dsinks = o.dsinks;
      args.write_dsinks = std::exchange(write_dsinks, Write::kAdd);
    }
    call(args);
  }
  return o;
}
template <typename T>
Outputs<Accumulate<T>> Parts(const Form& form, const Tensors<T>& in, int64_t chunks) {
  return Parts(form, in, Chunks(form, chunks), [](const auto& args) { Call(args); });
}

inline constexpr AttentionMask kFull = {.causal = false};
inline AttentionMask Window(int64_t keys) { return {.window = keys}; }

}  // namespace trainyard::testing
