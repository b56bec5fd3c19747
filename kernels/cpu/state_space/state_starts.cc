// A task is a head of a sequence. Elements of its state are processed in blocks, which stay in the
// nearest cache while the parts go by.

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/state_space/state_ends.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kBlock = 256;

// The places of a head of a sequence.
struct Places {
  template <typename Args>
  Places(const Args& args, int64_t task)
      : heads(args.heads),
        ranks(args.ranks),
        rank(args.rank),
        columns(args.ends.shape.back()),
        elements((columns - heads) / heads),
        sequences(args.ends.shape.rows() / (2 * ranks)),
        sequence(task / heads),
        head(task % heads) {}

  int64_t parts() const { return 2 * ranks; }
  bool IsOwn(int64_t part) const { return part == rank || part == parts() - 1 - rank; }
  // The element `i` of the head's state at the end or the start of a part.
  int64_t End(int64_t part, int64_t i) const {
    return RowOfPart(ranks, sequences, sequence, part) * columns + head * elements + i;
  }
  int64_t Decay(int64_t part) const { return End(part, 0) + (heads - head) * elements + head; }
  int64_t Start(int64_t part, int64_t i) const {
    return (2 * sequence + (part >= ranks ? 1 : 0)) * (columns - heads) + head * elements + i;
  }

  int64_t heads, ranks, rank, columns, elements, sequences, sequence, head;
};

template <typename A>
void Forward(Exec& exec, const StateStartsForwardArgs& args) {
  const A* const ends = args.ends.as<A>();
  A* const starts = args.starts.as<A>();
  const int64_t tasks = args.starts.shape.rows() / 2 * args.heads;
  ParallelRows(exec, tasks, args.ends.elements() / tasks, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const Places at(args, task);
      for (int64_t i = 0; i < at.elements; i += kBlock) {
        const int64_t count = std::min(kBlock, at.elements - i);
        A state[kBlock] = {};
        for (int64_t part = 0; part < at.parts(); ++part) {
          if (at.IsOwn(part)) std::copy_n(state, count, starts + at.Start(part, i));
          const A decay = Exp(ends[at.Decay(part)]);
          const A* const of_part = ends + at.End(part, i);
#pragma omp simd
          for (int64_t j = 0; j < count; ++j) state[j] = decay * state[j] + of_part[j];
        }
      }
    }
  });
}

template <typename A>
class Backward {
 public:
  // `states` is memory for a block of all parts.
  Backward(const StateStartsBackwardArgs& args, int64_t task, A* states)
      : at_(args, task),
        dstarts_(args.dstarts.as<A>()),
        ends_(args.ends.as<A>()),
        dends_(args.dends.as<A>()),
        states_(states) {}

  void Run() {
    for (int64_t part = 0; part < at_.parts(); ++part) dends_[at_.Decay(part)] = 0;
    for (int64_t i = 0; i < at_.elements; i += kBlock) {
      const int64_t count = std::min(kBlock, at_.elements - i);
      Starts(i, count);
      Gradients(i, count);
    }
  }

 private:
  // Finds the states at the start of all parts.
  void Starts(int64_t i, int64_t count) {
    std::fill_n(states_, kBlock, A(0));
    for (int64_t part = 0; part + 1 < at_.parts(); ++part) {
      const A decay = Exp(ends_[at_.Decay(part)]);
      const A *from = states_ + part * kBlock, *of_part = ends_ + at_.End(part, i);
      A* const to = states_ + (part + 1) * kBlock;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) to[j] = decay * from[j] + of_part[j];
    }
  }

  void Gradients(int64_t i, int64_t count) {
    A gradient[kBlock] = {};  // Of the state at the end of a part.
    for (int64_t part = at_.parts() - 1; part >= 0; --part) {
      const A decay = Exp(ends_[at_.Decay(part)]);
      const A* const state = states_ + part * kBlock;
      A* const dend = dends_ + at_.End(part, i);
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t j = 0; j < count; ++j) {
        dend[j] = gradient[j];
        gradient[j] *= decay;
        dot += gradient[j] * state[j];
      }
      dends_[at_.Decay(part)] += dot;
      if (!at_.IsOwn(part)) continue;
      const A* const dstart = dstarts_ + at_.Start(part, i);
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) gradient[j] += dstart[j];
    }
  }

  const Places at_;
  const A *dstarts_, *ends_;
  A *dends_, *states_;
};

template <typename A>
void RunBackward(Exec& exec, const StateStartsBackwardArgs& args) {
  Context& context = ContextOf(exec);
  const size_t bytes = size_t(2 * args.ranks * kBlock) * sizeof(A);
  const int64_t tasks = args.dstarts.shape.rows() / 2 * args.heads;
  ParallelTasks(exec, tasks, [&](int64_t task, int thread) {
    A* const states = reinterpret_cast<A*>(context.scratch[size_t(thread)].Reserve(bytes));
    Backward<A>(args, task, states).Run();
  });
}

}  // namespace

void StateStartsForward(Exec& exec, const StateStartsForwardArgs& args) {
  args.ends.dtype == DType::kF64 ? Forward<double>(exec, args) : Forward<float>(exec, args);
}

void StateStartsBackward(Exec& exec, const StateStartsBackwardArgs& args) {
  args.ends.dtype == DType::kF64 ? RunBackward<double>(exec, args) : RunBackward<float>(exec, args);
}

}  // namespace trainyard::cpu
