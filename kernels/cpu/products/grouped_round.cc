#include "kernels/products/grouped_round.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/group_rows.h"

namespace trainyard::cpu {
namespace {

// Calls body(g, first row, rows) for each group, with or without offsets.
template <typename Body>
void ForEachGroupOf(const ConstTensor& x, const ConstTensor& offsets, int64_t groups,
                    const Body& body) {
  if (offsets.data != nullptr) {
    return ForEachGroup("grouped_round", offsets, x.shape.rows(), body);
  }
  const int64_t rows = x.shape.rows() / groups;
  for (int64_t g = 0; g < groups; ++g) body(g, g * rows, rows);
}

template <typename T>
void FindAmax(Exec& exec, const GroupedAmaxArgs& args) {
  using A = Accumulate<T>;
  const int64_t columns = args.x.shape.back();
  A* const of_row =
      reinterpret_cast<A*>(ContextOf(exec).shared.Reserve(size_t(args.x.shape.rows()) * sizeof(A)));
  const T* const x = args.x.as<T>();
  A* const amax = args.amax.as<A>();
  const bool add = args.write == Write::kAdd;
  ForEachGroupOf(args.x, args.offsets, args.amax.elements(),
                 [&](int64_t g, int64_t first, int64_t rows) {
                   ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
                     for (int64_t r = first + begin; r < first + end; ++r) {
                       A most = 0;
#pragma omp simd reduction(max : most)
                       for (int64_t c = 0; c < columns; ++c)
                         most = std::max(most, std::abs(A(x[r * columns + c])));
                       of_row[r] = most;
                     }
                   });
                   A most = add ? amax[g] : A(0);
                   for (int64_t r = first; r < first + rows; ++r) most = std::max(most, of_row[r]);
                   amax[g] = most;
                 });
}

template <typename Format, typename T>
void Round(Exec& exec, const GroupedRoundArgs& args) {
  using A = Accumulate<T>;
  constexpr A kLargest = Format::kLargest;
  constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
  static const std::array<float, 256> numbers = AllNumbers<Format>();
  const int64_t columns = args.x.shape.back(), groups = args.scales.elements();
  const int64_t values = args.amax.elements() / groups;  // Of a group.
  const T* const x = args.x.as<T>();
  T* const y = args.y.as<T>();
  const A* const amax = args.amax.as<A>();
  A* const scales = args.scales.as<A>();
  ForEachGroupOf(args.x, args.offsets, groups, [&](int64_t g, int64_t first, int64_t rows) {
    const A most = *std::max_element(amax + g * values, amax + (g + 1) * values);
    const A factor = most == 0 ? A(1) : kLargest / std::max(most, kLeast);
    scales[g] = 1 / factor;
    ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
      for (int64_t i = (first + begin) * columns; i < (first + end) * columns; ++i) {
        y[i] = T(numbers[RoundTo<Format>(A(x[i]) * factor)]);
      }
    });
  });
}

}  // namespace

void GroupedAmax(Exec& exec, const GroupedAmaxArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { FindAmax<decltype(scalar)>(exec, args); });
}

void GroupedRound(Exec& exec, const GroupedRoundArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    DispatchNarrow(args.format,
                   [&](auto format) { Round<decltype(format), decltype(scalar)>(exec, args); });
  });
}

}  // namespace trainyard::cpu
