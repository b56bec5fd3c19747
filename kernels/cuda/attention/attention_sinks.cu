#include "kernels/cuda/attention/attention_sinks.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/context.h"

namespace trainyard::cuda {
namespace {

// Finds the query and the head of value i of [sequences, heads, rows].
struct Queries {
  int64_t sequence, begin, rows;  // Rows [begin, begin + rows) of each sequence.
  int64_t heads, width;           // `width`: elements of a head in a row of `out`.

  __device__ int64_t head(int64_t i) const { return i / rows % heads; }
  __device__ int64_t row(int64_t i) const {
    return i / (rows * heads) * sequence + begin + i % rows;
  }
  // Returns the index of the first element of the query's head in a matrix whose rows have
  // `row_elements`.
  __device__ int64_t offset(int64_t i, int64_t row_elements) const {
    return row(i) * row_elements + head(i) * width;
  }
};

template <typename Core>
Queries QueriesOf(const Core& core) {
  return {core.dims.sequence, core.part.q_begin, core.part.q_rows, core.dims.heads,
          core.dims.value_dim};
}

template <typename T>
struct AddBody {
  using A = Accumulate<T>;
  Queries queries;
  const T* sinks;
  Heads<T> out;
  A* lse;

  __device__ void operator()(int64_t i) const {
    const A before = lse[i], sink = A(sinks[queries.head(i)]);
    const A larger = before < sink ? sink : before;
    const A after = larger + std::log1p(std::exp(-std::abs(before - sink)));
    const A factor = std::exp(before - after);
    lse[i] = after;
    T* const own = out.data + queries.offset(i, out.row);
    for (int64_t c = 0; c < queries.width; c += kPackOf<T>) {
      auto values = LoadPack<T, kPackOf<T>>(own + c);
      for (T& value : values.v) value = T(A(value) * factor);
      StorePack(own + c, values);
    }
  }
};

template <typename T>
struct DeltaBody {
  using A = Accumulate<T>;
  Queries queries;
  Heads<const T> out, dout;
  A* deltas;

  __device__ void operator()(int64_t i) const {
    const T* const x = out.data + queries.offset(i, out.row);
    const T* const dx = dout.data + queries.offset(i, dout.row);
    A sum = 0;
    for (int64_t c = 0; c < queries.width; c += kPackOf<T>) {
      const auto xs = LoadPack<T, kPackOf<T>>(x + c), dxs = LoadPack<T, kPackOf<T>>(dx + c);
      for (int n = 0; n < kPackOf<T>; ++n) sum += A(xs.v[n]) * A(dxs.v[n]);
    }
    deltas[i] = sum;
  }
};

// A block sums the gradient of one head's sink over all queries, in a fixed order.
template <typename T, typename O>
__global__ void __launch_bounds__(kTileThreads)
    SinkKernel(AttentionBackwardCore<T, O> core, const Accumulate<T>* deltas) {
  using A = Accumulate<T>;
  const int64_t head = blockIdx.x, heads = core.dims.heads;
  const A sink = A(core.sinks[head]);
  A sum = 0;
  for (int64_t sequence = 0; sequence < core.sequences; ++sequence) {
    const int64_t row = sequence * heads + head;
    const A* const lse = core.lse + row * core.dims.sequence + core.part.q_begin;
    const A* const delta = deltas + row * core.part.q_rows;
#pragma unroll 1  // An unrolled loop would spill registers.
    for (int64_t i = threadIdx.x; i < core.part.q_rows; i += kTileThreads) {
      sum += std::exp(sink - lse[i]) * delta[i];
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x != 0) return;
  const A before = core.write_dsinks == Write::kAdd ? core.dsinks[head] : A(0);
  core.dsinks[head] = before - sum;
}

}  // namespace

// AddSinks and the deltas of SinkGradient are bound by memory: each thread reads the neighbouring
// packs of one head of one query.
template <typename T>
void AddSinks(Exec& exec, const AttentionForwardCore<T, T>& core) {
  const Queries queries = QueriesOf(core);
  CHECK(CanPack<T>(queries.width, core.out.data)) << "sinks of heads of " << queries.width;
  ForEach(exec, core.sequences * queries.heads * queries.rows,
          AddBody<T>{queries, core.sinks, core.out, core.lse});
}

template <typename T, typename O>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, O>& core,
                  const Accumulate<T>* deltas) {
  Launch(exec, Grid{.blocks = core.dims.heads, .threads = kTileThreads}, SinkKernel<T, O>, core,
         deltas);
}

template <typename T, typename O>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  const Queries queries = QueriesOf(core);
  CHECK(CanPack<T>(queries.width, core.out.data, core.dout.data))
      << "sinks of heads of " << queries.width;
  const int64_t count = core.sequences * queries.heads * queries.rows;
  auto* const deltas = ScratchOf<Accumulate<T>>(exec, count);
  ForEach(exec, count, DeltaBody<T>{queries, core.out, core.dout, deltas});
  SinkGradient(exec, core, deltas);
}

template void AddSinks(Exec&, const AttentionForwardCore<float, float>&);
template void AddSinks(Exec&, const AttentionForwardCore<bf16, bf16>&);
template void SinkGradient(Exec&, const AttentionBackwardCore<double, double>&, const double*);
template void SinkGradient(Exec&, const AttentionBackwardCore<float, float>&, const float*);
template void SinkGradient(Exec&, const AttentionBackwardCore<bf16, bf16>&, const float*);
template void SinkGradient(Exec&, const AttentionBackwardCore<bf16, float>&, const float*);
template void SinkGradient(Exec&, const AttentionBackwardCore<float, float>&);
template void SinkGradient(Exec&, const AttentionBackwardCore<bf16, bf16>&);
template void SinkGradient(Exec&, const AttentionBackwardCore<bf16, float>&);

}  // namespace trainyard::cuda
