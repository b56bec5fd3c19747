#include "kernels/experts/gather_rows.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

int64_t CountOf(const GatherRowsArgs& args) {
  const int64_t bound = args.rows.elements();
  const int64_t count = args.count.data != nullptr ? args.count.as<int32_t>()[0] : bound;
  CHECK(count >= 0 && count <= bound) << "gather_rows count: " << count << " of " << bound;
  return count;
}

template <typename T>
void Sum(const Exec& exec, const GatherSumArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.z.shape.back(), k = args.place.shape.back();
  const T* z = args.z.as<T>();
  const int32_t* place_data = args.place.as<int32_t>();
  T* y = args.y.as<T>();
  const bool add = args.write == Write::kAdd;
  ParallelRows(exec, args.place.shape.rows(), k * d, [=](int64_t begin, int64_t end) {
    constexpr int64_t kColumns = 256;  // At a time, so that their sums stay in the nearest cache.
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* place = place_data + t * k;
      if (add && std::all_of(place, place + k, [](int32_t of) { return of < 0; })) continue;
      for (int64_t first = 0; first < d; first += kColumns) {
        const int64_t columns = std::min(kColumns, d - first);
        T* out = y + t * d + first;
        A sum[kColumns];
        for (int64_t i = 0; i < columns; ++i) sum[i] = add ? A(out[i]) : A(0);
        for (int64_t j = 0; j < k; ++j) {
          if (place[j] < 0) continue;
          const T* row = z + place[j] * d + first;
#pragma omp simd
          for (int64_t i = 0; i < columns; ++i) sum[i] += A(row[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = T(sum[i]);
      }
    }
  });
}

}  // namespace

void GatherRows(Exec& exec, const GatherRowsArgs& args) {
  const int64_t count = CountOf(args), sources = args.x.shape.rows(), divisor = args.divisor;
  const int32_t* rows = args.rows.as<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    CHECK(rows[i] >= 0 && rows[i] / divisor < sources)
        << "gather_rows rows: row " << rows[i] << " / " << divisor << " at " << i << ", x has "
        << sources;
  }
  const int64_t d = args.x.shape.back(), row_bytes = d * int64_t(SizeOf(args.x.dtype));
  const auto* x = static_cast<const std::byte*>(args.x.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  ParallelRows(exec, count, d, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x + rows[i] / divisor * row_bytes, row_bytes, y + i * row_bytes);
    }
  });
}

void ScatterRows(Exec& exec, const ScatterRowsArgs& args) {
  const int64_t count = args.rows.elements(), places = args.y.shape.rows();
  const int32_t* rows = args.rows.as<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    CHECK(rows[i] >= -1 && rows[i] < places)
        << "scatter_rows rows: row " << rows[i] << " at " << i << ", y has " << places;
  }
  const int64_t d = args.x.shape.back(), row_bytes = d * int64_t(SizeOf(args.x.dtype));
  const auto* x = static_cast<const std::byte*>(args.x.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  ParallelRows(exec, count, d, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rows[i] >= 0) std::copy_n(x + i * row_bytes, row_bytes, y + rows[i] * row_bytes);
    }
  });
}

void GatherSum(Exec& exec, const GatherSumArgs& args) {
  const int64_t sources = args.z.shape.rows();
  const int32_t* place = args.place.as<int32_t>();
  for (int64_t i = 0; i < args.place.elements(); ++i) {
    CHECK(place[i] >= -1 && place[i] < sources)
        << "gather_sum place: row " << place[i] << " at " << i << ", z has " << sources;
  }
  DispatchFloat(args.z.dtype, [&](auto scalar) { Sum<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
