// Visits the fields of an aggregate, in the order of their declaration.

#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace trainyard {

// Converts to whatever a field is. Never defined, because no expression with it is evaluated.
struct AnyField {
  template <typename T>
  constexpr operator T() const;
};

template <typename T, size_t... i>
constexpr bool TakesFields(std::index_sequence<i...>) {
  return requires { T{(static_cast<void>(i), AnyField{})...}; };
}

// The number of fields of T: the most initialisers that it takes.
template <typename T, size_t n = 0>
constexpr size_t NumFields() {
  if constexpr (TakesFields<T>(std::make_index_sequence<n + 1>())) {
    return NumFields<T, n + 1>();
  } else {
    return n;
  }
}

// Calls visit(field) for each field of `object`. Fields that are aggregates are not divided.
template <typename T, typename F>
void ForEachField(const T& object, F&& visit) {
  static_assert(std::is_aggregate_v<T>);
  static_assert(NumFields<T>() >= 1 && NumFields<T>() <= 24, "more lines are needed below");
  const auto each = [&](const auto&... fields) { (visit(fields), ...); };
// clang-format off
#define TRAINYARD_FIELDS(n, ...) \
  if constexpr (NumFields<T>() == n) { const auto& [__VA_ARGS__] = object; each(__VA_ARGS__); }
  TRAINYARD_FIELDS(1, a)
  TRAINYARD_FIELDS(2, a, b)
  TRAINYARD_FIELDS(3, a, b, c)
  TRAINYARD_FIELDS(4, a, b, c, d)
  TRAINYARD_FIELDS(5, a, b, c, d, e)
  TRAINYARD_FIELDS(6, a, b, c, d, e, f)
  TRAINYARD_FIELDS(7, a, b, c, d, e, f, g)
  TRAINYARD_FIELDS(8, a, b, c, d, e, f, g, h)
  TRAINYARD_FIELDS(9, a, b, c, d, e, f, g, h, i)
  TRAINYARD_FIELDS(10, a, b, c, d, e, f, g, h, i, j)
  TRAINYARD_FIELDS(11, a, b, c, d, e, f, g, h, i, j, k)
  TRAINYARD_FIELDS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  TRAINYARD_FIELDS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  TRAINYARD_FIELDS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n_)
  TRAINYARD_FIELDS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o)
  TRAINYARD_FIELDS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p)
  TRAINYARD_FIELDS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q)
  TRAINYARD_FIELDS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r)
  TRAINYARD_FIELDS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s)
  TRAINYARD_FIELDS(20, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s, t)
  TRAINYARD_FIELDS(21, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s, t, u)
  TRAINYARD_FIELDS(22, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s, t, u, v)
  TRAINYARD_FIELDS(23, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s, t, u, v, w)
  TRAINYARD_FIELDS(24, a, b, c, d, e, f, g, h, i, j, k, l, m, n_, o, p, q, r, s, t, u, v, w, x)
#undef TRAINYARD_FIELDS
  // clang-format on
}

}  // namespace trainyard
