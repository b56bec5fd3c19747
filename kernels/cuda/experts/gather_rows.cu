// Bound by memory. One warp reads and writes each row once, 16 bytes a lane if rows allow it, with
// several loads in flight.
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/experts/gather_rows.h"

namespace trainyard::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

Grid WarpForEach(int64_t rows) { return {std::min(CeilDiv(rows, kWarps), kMaxBlocks), kThreads}; }

// The first row of this warp, and the distance to its next.
__device__ int64_t FirstRow() { return int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; }
__device__ int64_t RowStride() { return int64_t(gridDim.x) * kWarps; }

struct Gather {
  const int32_t* rows;
  int64_t bound;
  const int32_t* count;  // Null: all of `bound`.
  uint32_t divisor;
  int64_t sources, columns;
  Failure fail = {};
};

using SixteenBytes = Pack<uint32_t, 4>;

// A warp copies the bytes of a row word by word, whatever their type.
template <typename Word>
__device__ void CopyRow(const Word* in, Word* out, int64_t columns) {
  constexpr int kLoads = 4;  // In flight.
  for (int64_t c = threadIdx.x % kWarp; c < columns; c += kLoads * kWarp) {
    Word word[kLoads];
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      if (c + n * kWarp < columns) word[n] = in[c + n * kWarp];
    }
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      if (c + n * kWarp < columns) out[c + n * kWarp] = word[n];
    }
  }
}

template <typename Word>
__global__ void __launch_bounds__(kThreads) GatherKernel(Gather gather, const Word* x, Word* y) {
  const int64_t count = gather.count != nullptr ? *gather.count : gather.bound;
  if (count < 0 || count > gather.bound) {
    gather.fail("gather_rows count: % of %", count, gather.bound);
  }
  const int64_t columns = gather.columns;
  for (int64_t i = FirstRow(); i < count; i += RowStride()) {
    const int32_t row = gather.rows[i];
    const int64_t from = uint32_t(row) / gather.divisor;
    if (row < 0 || from >= gather.sources) {
      gather.fail("gather_rows rows: row % / % at %, x has %", row, gather.divisor, i,
                  gather.sources);
    }
    CopyRow(x + from * columns, y + i * columns, columns);
  }
}

struct Scatter {
  const int32_t* rows;
  int64_t count, places, columns;
  Failure fail = {};
};

template <typename Word>
__global__ void __launch_bounds__(kThreads) ScatterKernel(Scatter scatter, const Word* x, Word* y) {
  const int64_t columns = scatter.columns;
  for (int64_t i = FirstRow(); i < scatter.count; i += RowStride()) {
    const int32_t row = scatter.rows[i];
    if (row < -1 || row >= scatter.places) {
      scatter.fail("scatter_rows rows: row % at %, y has %", row, i, scatter.places);
    }
    if (row >= 0) CopyRow(x + i * columns, y + row * columns, columns);
  }
}

struct Sums {
  const int32_t* place;
  int64_t tokens, choices, sources, columns;
  bool add;
  Failure fail = {};
};

template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads) SumKernel(Sums sums, const T* z, T* y) {
  using A = Accumulate<T>;
  constexpr int kLoads = 4;  // In flight.
  const int64_t columns = sums.columns, choices = sums.choices;
  for (int64_t t = FirstRow(); t < sums.tokens; t += RowStride()) {
    const int32_t* place = sums.place + t * choices;
    for (int64_t j = threadIdx.x % kWarp; j < choices; j += kWarp) {
      if (place[j] < -1 || place[j] >= sums.sources) {
        sums.fail("gather_sum place: row % at %, z has %", place[j], t * choices + j, sums.sources);
      }
    }
    __syncwarp();  // No lane reads a row that another lane has found not to exist.
    T* out = y + t * columns;
    for (int64_t c = threadIdx.x % kWarp * kPack; c < columns; c += kWarp * kPack) {
      A sum[kPack] = {};
      if (sums.add) {
        const auto before = LoadPack<T, kPack>(out + c);
#pragma unroll
        for (int n = 0; n < kPack; ++n) sum[n] = A(before.v[n]);
      }
      for (int64_t first = 0; first < choices; first += kLoads) {
        Pack<T, kPack> pack[kLoads];
        bool adds[kLoads];
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
          const int64_t row = first + j < choices ? place[first + j] : -1;
          adds[j] = row >= 0;
          if (adds[j]) pack[j] = LoadPack<T, kPack>(z + row * columns + c);
        }
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
#pragma unroll
          for (int n = 0; n < kPack; ++n) sum[n] = adds[j] ? sum[n] + A(pack[j].v[n]) : sum[n];
        }
      }
      Pack<T, kPack> result;
#pragma unroll
      for (int n = 0; n < kPack; ++n) result.v[n] = T(sum[n]);
      StorePack(out + c, result);
    }
  }
}

}  // namespace

void GatherRows(Exec& exec, const GatherRowsArgs& args) {
  // Row numbers are less than 2^31, so a larger divisor turns each into 0.
  Gather gather = {.rows = args.rows.as<int32_t>(),
                   .bound = args.rows.elements(),
                   .count = args.count.data != nullptr ? args.count.as<int32_t>() : nullptr,
                   .divisor = uint32_t(std::min<int64_t>(args.divisor, UINT32_MAX)),
                   .sources = args.x.shape.rows(),
                   .columns = args.x.shape.back()};
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    if (!CanPack<T>(gather.columns, x, y)) {
      return Launch(exec, WarpForEach(gather.bound), GatherKernel<T>, gather, x, y);
    }
    gather.columns /= kPackOf<T>;
    Launch(exec, WarpForEach(gather.bound), GatherKernel<SixteenBytes>, gather,
           reinterpret_cast<const SixteenBytes*>(x), reinterpret_cast<SixteenBytes*>(y));
  });
}

void ScatterRows(Exec& exec, const ScatterRowsArgs& args) {
  Scatter scatter = {.rows = args.rows.as<int32_t>(),
                     .count = args.rows.elements(),
                     .places = args.y.shape.rows(),
                     .columns = args.x.shape.back()};
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    if (!CanPack<T>(scatter.columns, x, y)) {
      return Launch(exec, WarpForEach(scatter.count), ScatterKernel<T>, scatter, x, y);
    }
    scatter.columns /= kPackOf<T>;
    Launch(exec, WarpForEach(scatter.count), ScatterKernel<SixteenBytes>, scatter,
           reinterpret_cast<const SixteenBytes*>(x), reinterpret_cast<SixteenBytes*>(y));
  });
}

void GatherSum(Exec& exec, const GatherSumArgs& args) {
  const Sums sums = {.place = args.place.as<int32_t>(),
                     .tokens = args.place.shape.rows(),
                     .choices = args.place.shape.back(),
                     .sources = args.z.shape.rows(),
                     .columns = args.z.shape.back(),
                     .add = args.write == Write::kAdd};
  DispatchFloat(args.z.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* z = args.z.as<T>();
    T* y = args.y.as<T>();
    const bool packed = CanPack<T>(sums.columns, z, y);
    const auto kernel = packed ? SumKernel<T, kPackOf<T>> : SumKernel<T, 1>;
    Launch(exec, WarpForEach(sums.tokens), kernel, sums, z, y);
  });
}

}  // namespace trainyard::cuda
