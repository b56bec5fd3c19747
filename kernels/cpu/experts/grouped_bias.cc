#include "kernels/experts/grouped_bias.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// The rows of each group. CHECKs the offsets.
class Groups {
 public:
  Groups(const ConstTensor& offsets, int64_t bound)
      : offset_(offsets.as<int32_t>()), count_(offsets.elements() - 1) {
    for (int64_t g = 0; g < count_; ++g) {
      CHECK(offset_[g] >= 0 && offset_[g] <= offset_[g + 1] && offset_[g + 1] <= bound)
          << "grouped_bias offsets: group " << g << " has rows " << offset_[g] << " to "
          << offset_[g + 1] << " of " << bound;
    }
  }

  int64_t count() const { return count_; }
  int64_t begin() const { return offset_[0]; }
  int64_t rows() const { return offset_[count_] - offset_[0]; }
  int64_t begin(int64_t g) const { return offset_[g]; }
  int64_t end(int64_t g) const { return offset_[g + 1]; }
  // Returns the group of a row, which must belong to a group.
  int64_t Of(int64_t row) const {
    return std::upper_bound(offset_, offset_ + count_ + 1, int32_t(row)) - offset_ - 1;
  }

 private:
  const int32_t* offset_;
  int64_t count_;
};

// Calls body(row, group) for each row of a group, on several threads.
template <typename Body>
void ForEachRow(const Exec& exec, const Groups& groups, int64_t columns, const Body& body) {
  ParallelRows(exec, groups.rows(), columns, [&](int64_t begin, int64_t end) {
    int64_t g = begin < end ? groups.Of(groups.begin() + begin) : 0;
    for (int64_t r = groups.begin() + begin; r < groups.begin() + end; ++r) {
      while (r >= groups.end(g)) ++g;
      body(r, g);
    }
  });
}

template <typename T>
void Forward(const Exec& exec, const GroupedBiasForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t n = args.y.shape.back();
  const Groups groups(args.offsets, args.y.shape.rows());
  const A* w = args.w.data != nullptr ? args.w.as<A>() : nullptr;
  ForEachRow(exec, groups, n, [&](int64_t r, int64_t g) {
    const A weight = w != nullptr ? w[r] : A(1);
    const T* bias = args.bias.as<T>() + g * n;
    T* y = args.y.as<T>() + r * n;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) y[c] = T(A(y[c]) + weight * A(bias[c]));
  });
}

template <typename T>
void Gradient(Exec& exec, const GroupedBiasGradientArgs& args) {
  using A = Accumulate<T>;
  const int64_t n = args.dy.shape.back();
  const Groups groups(args.offsets, args.dy.shape.rows());
  const A* w = args.w.data != nullptr ? args.w.as<A>() : nullptr;
  Context& context = ContextOf(exec);
  const Exec one = {.threads = 1};
  const bool few = groups.rows() * n < kSerialElements;
  ParallelTasks(few ? one : exec, groups.count(), [&](int64_t g, int thread) {
    A* sum = reinterpret_cast<A*>(context.scratch[size_t(thread)].Reserve(size_t(n) * sizeof(A)));
    std::fill_n(sum, n, A(0));
    for (int64_t r = groups.begin(g); r < groups.end(g); ++r) {
      const A weight = w != nullptr ? w[r] : A(1);
      const T* dy = args.dy.as<T>() + r * n;
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) sum[c] += weight * A(dy[c]);
    }
    A* dbias = args.dbias.as<A>() + g * n;
    for (int64_t c = 0; c < n; ++c) {
      dbias[c] = args.write == Write::kAdd ? dbias[c] + sum[c] : sum[c];
    }
  });
}

template <typename T>
void FactorGradient(const Exec& exec, const GroupedBiasFactorGradientArgs& args) {
  using A = Accumulate<T>;
  const int64_t n = args.dy.shape.back();
  const Groups groups(args.offsets, args.dy.shape.rows());
  A* dw = args.dw.as<A>();
  ForEachRow(exec, groups, n, [&](int64_t r, int64_t g) {
    const T* dy = args.dy.as<T>() + r * n;
    const T* bias = args.bias.as<T>() + g * n;
    A along = 0;
#pragma omp simd reduction(+ : along)
    for (int64_t c = 0; c < n; ++c) along += A(dy[c]) * A(bias[c]);
    dw[r] += along;
  });
}

}  // namespace

void GroupedBiasForward(Exec& exec, const GroupedBiasForwardArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void GroupedBiasGradient(Exec& exec, const GroupedBiasGradientArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) { Gradient<decltype(scalar)>(exec, args); });
}

void GroupedBiasFactorGradient(Exec& exec, const GroupedBiasFactorGradientArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) { FactorGradient<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
