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

template <typename A, typename T>
A GreatestOfRow(const T* x, int64_t columns) {
  A most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t c = 0; c < columns; ++c) most = std::max(most, std::abs(A(x[c])));
  return most;
}

template <typename T>
void FindAmaxOfRows(Exec& exec, const GroupedAmaxArgs& args) {
  using A = Accumulate<T>;
  const int64_t columns = args.x.shape.back();
  const int64_t groups = GroupsOfScales(args.x, args.offsets, ScaleOf::kRow, 0);
  const T* const x = args.x.as<T>();
  A* const amax = args.amax.as<A>();
  const bool add = args.write == Write::kAdd;
  ForEachGroupOf(args.x, args.offsets, groups, [&](int64_t, int64_t first, int64_t rows) {
    ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
      for (int64_t r = first + begin; r < first + end; ++r) {
        amax[r] = std::max(add ? amax[r] : A(0), GreatestOfRow<A>(x + r * columns, columns));
      }
    });
  });
}

template <typename T>
void FindAmaxOfColumns(Exec& exec, const GroupedAmaxArgs& args) {
  using A = Accumulate<T>;
  const int64_t columns = args.x.shape.back(), groups = args.amax.elements() / columns;
  const T* const x = args.x.as<T>();
  A* const amax = args.amax.as<A>();
  const bool add = args.write == Write::kAdd;
  ForEachGroupOf(args.x, args.offsets, groups, [&](int64_t g, int64_t first, int64_t rows) {
    ParallelRows(exec, columns, rows, [=](int64_t begin, int64_t end) {
      if (!add) std::fill(amax + g * columns + begin, amax + g * columns + end, A(0));
      for (int64_t r = first; r < first + rows; ++r) {
        for (int64_t c = begin; c < end; ++c) {
          A& most = amax[g * columns + c];
          most = std::max(most, std::abs(A(x[r * columns + c])));
        }
      }
    });
  });
}

template <typename T>
void FindAmax(Exec& exec, const GroupedAmaxArgs& args) {
  if (args.scale_of == ScaleOf::kRow) return FindAmaxOfRows<T>(exec, args);
  if (args.scale_of == ScaleOf::kColumn) return FindAmaxOfColumns<T>(exec, args);
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
                       of_row[r] = GreatestOfRow<A>(x + r * columns, columns);
                     }
                   });
                   A most = add ? amax[g] : A(0);
                   for (int64_t r = first; r < first + rows; ++r) most = std::max(most, of_row[r]);
                   amax[g] = most;
                 });
}

// What numbers with this greatest value are multiplied by.
template <typename Format, typename A>
A FactorOf(A most) {
  constexpr A kLargest = Format::kLargest;
  constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
  return most == 0 ? A(1) : kLargest / std::max(most, kLeast);
}

// With a scale for each row, or for each column of a group.
template <typename Format, typename T>
void RoundLines(Exec& exec, const GroupedRoundArgs& args) {
  using A = Accumulate<T>;
  static const std::array<float, 256> numbers = AllNumbers<Format>();
  const int64_t columns = args.x.shape.back();
  const bool by_row = args.scale_of == ScaleOf::kRow;
  const T* const x = args.x.as<T>();
  T* const y = args.y.as<T>();
  const A* const amax = args.amax.as<A>();
  A* const scales = args.scales.as<A>();
  const int64_t groups =
      GroupsOfScales(args.x, args.offsets, args.scale_of, args.scales.elements());
  ForEachGroupOf(args.x, args.offsets, groups, [&](int64_t g, int64_t first, int64_t rows) {
    const int64_t lines = by_row ? first : g * columns;
    for (int64_t i = lines; i < lines + (by_row ? rows : columns); ++i) {
      scales[i] = 1 / FactorOf<Format>(amax[i]);
    }
    ParallelRows(exec, rows, columns, [=](int64_t begin, int64_t end) {
      for (int64_t r = first + begin; r < first + end; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const A factor = FactorOf<Format>(amax[by_row ? r : lines + c]);
          const int64_t i = r * columns + c;
          y[i] = T(numbers[RoundTo<Format>(A(x[i]) * factor)]);
        }
      }
    });
  });
}

template <typename Format, typename T>
void Round(Exec& exec, const GroupedRoundArgs& args) {
  if (args.scale_of != ScaleOf::kGroup) return RoundLines<Format, T>(exec, args);
  using A = Accumulate<T>;
  static const std::array<float, 256> numbers = AllNumbers<Format>();
  const int64_t columns = args.x.shape.back(), groups = args.scales.elements();
  const int64_t values = args.amax.elements() / groups;  // Of a group.
  const T* const x = args.x.as<T>();
  T* const y = args.y.as<T>();
  const A* const amax = args.amax.as<A>();
  A* const scales = args.scales.as<A>();
  ForEachGroupOf(args.x, args.offsets, groups, [&](int64_t g, int64_t first, int64_t rows) {
    const A most = *std::max_element(amax + g * values, amax + (g + 1) * values);
    const A factor = FactorOf<Format>(most);
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
