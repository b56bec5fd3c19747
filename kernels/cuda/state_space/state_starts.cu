// Bound by memory: a few states for each part of a sequence.

#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/state_space/state_ends.h"

namespace trainyard::cuda {
namespace {

// The places of a head of a sequence.
struct Places {
  int64_t heads, ranks, rank, columns, elements, sequences;

  template <typename Args>
  explicit Places(const Args& args)
      : heads(args.heads),
        ranks(args.ranks),
        rank(args.rank),
        columns(args.ends.shape.back()),
        elements((columns - heads) / heads),
        sequences(args.ends.shape.rows() / (2 * ranks)) {}

  __device__ int64_t parts() const { return 2 * ranks; }
  __device__ bool IsOwn(int64_t part) const { return part == rank || part == parts() - 1 - rank; }
  __device__ int64_t End(int64_t sequence, int64_t part, int64_t head) const {
    return RowOfPart(ranks, sequences, sequence, part) * columns + head * elements;
  }
  __device__ int64_t Decay(int64_t sequence, int64_t part, int64_t head) const {
    return RowOfPart(ranks, sequences, sequence, part) * columns + heads * elements + head;
  }
  __device__ int64_t Start(int64_t sequence, int64_t part, int64_t head) const {
    return (2 * sequence + (part >= ranks ? 1 : 0)) * (columns - heads) + head * elements;
  }
};

template <typename A>
struct ForwardBody {
  Places at;
  const A* ends;
  A* starts;

  __device__ void operator()(int64_t i) const {
    const int64_t e = i % at.elements, head = i / at.elements % at.heads;
    const int64_t sequence = i / at.elements / at.heads;
    A state = 0;
    for (int64_t part = 0; part < at.parts(); ++part) {
      if (at.IsOwn(part)) starts[at.Start(sequence, part, head) + e] = state;
      state = std::exp(ends[at.Decay(sequence, part, head)]) * state +
              ends[at.End(sequence, part, head) + e];
    }
  }
};

template <typename A>
struct Backward {
  Places at;
  const A* dstarts;
  const A* ends;
  A* dends;
};

constexpr int kThreads = 256;

// A block has a head of a sequence. Each thread goes through the parts for its elements: forward,
// with the states in the place of the gradients, and backward.
template <typename A>
__global__ void __launch_bounds__(kThreads) BackwardKernel(Backward<A> args) {
  const Places& at = args.at;
  const int64_t head = blockIdx.x % at.heads, sequence = blockIdx.x / at.heads;
  const auto decay = [&](int64_t part) {
    return std::exp(args.ends[at.Decay(sequence, part, head)]);
  };
  for (int64_t e = threadIdx.x; e < at.elements; e += kThreads) {
    A state = 0;
#pragma unroll 1
    for (int64_t part = 0; part < at.parts(); ++part) {
      const int64_t end = at.End(sequence, part, head) + e;
      args.dends[end] = state;
      state = decay(part) * state + args.ends[end];
    }
  }
  for (int64_t part = at.parts() - 1; part >= 0; --part) {
    A dot = 0;
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < at.elements; e += kThreads) {
      A gradient = 0;  // Of the state at the end of this part, which is the next one's start.
      if (part + 1 < at.parts()) {
        gradient = decay(part + 1) * args.dends[at.End(sequence, part + 1, head) + e];
        if (at.IsOwn(part + 1)) gradient += args.dstarts[at.Start(sequence, part + 1, head) + e];
      }
      A& place = args.dends[at.End(sequence, part, head) + e];
      dot += gradient * place;
      place = gradient;
    }
    dot = BlockSum(dot) * decay(part);
    if (threadIdx.x == 0) args.dends[at.Decay(sequence, part, head)] = dot;
  }
}

template <typename A>
void RunForward(Exec& exec, const StateStartsForwardArgs& args) {
  ForEach(exec, args.starts.elements() / 2,
          ForwardBody<A>{Places(args), args.ends.as<A>(), args.starts.as<A>()});
}

template <typename A>
void RunBackward(Exec& exec, const StateStartsBackwardArgs& args) {
  Launch(exec, {args.dstarts.shape.rows() / 2 * args.heads, kThreads}, BackwardKernel<A>,
         Backward<A>{Places(args), args.dstarts.as<A>(), args.ends.as<A>(), args.dends.as<A>()});
}

}  // namespace

void StateStartsForward(Exec& exec, const StateStartsForwardArgs& args) {
  args.ends.dtype == DType::kF64 ? RunForward<double>(exec, args) : RunForward<float>(exec, args);
}

void StateStartsBackward(Exec& exec, const StateStartsBackwardArgs& args) {
  args.ends.dtype == DType::kF64 ? RunBackward<double>(exec, args) : RunBackward<float>(exec, args);
}

}  // namespace trainyard::cuda
