// A number is read once, and written once for each copy of the matrix. Instructions bound the speed
// more than memory does: 26 to 55 a number, where an H200 has time for some 21. A block of threads
// takes a tile of 64 x 128 numbers. Tiles pass through shared memory, so that both copies are
// written in accesses of 16 bytes: a row of the tile, and a column of it.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/round_pair.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row.h"
#include "kernels/products/quantize.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 64, kTileColumns = 128;
constexpr int kPack = 8;                       // Numbers of a row that a thread has.
constexpr int kAcross = kTileColumns / kPack;  // Threads of a row.
constexpr int kDown = kThreads / kAcross;      // Rows that the threads have at a time.
constexpr int kPacks = kTileRows / kDown;      // Packs of a thread.
constexpr int kChunk = 16;                     // Bytes of one access.
constexpr int kChunks = kTileRows * kTileColumns / kChunk / kThreads;  // Of a thread, each copy.

// A matrix, and the numbers of it that share a scale. Dims are below 2^31.
template <typename T>
struct Blocks {
  const T* x;
  int rows, columns;
  int block_rows, block_columns;  // Real sizes.
  int across;                     // Scales of a row of blocks.

  __device__ int64_t ScaleOf(int row, int column) const {
    return int64_t(row / block_rows) * across + column / block_columns;
  }
};

template <typename T>
Blocks<T> BlocksOf(const ConstTensor& x, const ScaleBlock& block) {
  const ScaleBlock real = block.In(x.shape);
  const Shape scales = block.ScalesOf(x.shape);
  CHECK(x.shape.rows() <= std::numeric_limits<int>::max() &&
        x.shape.back() <= std::numeric_limits<int>::max())
      << "quantize x: wanted dims below 2^31, got " << x.shape;
  return {.x = x.as<T>(),
          .rows = int(x.shape.rows()),
          .columns = int(x.shape.back()),
          .block_rows = int(real.rows),
          .block_columns = int(real.columns),
          .across = int(scales[1])};
}

template <typename T>
int64_t Tiles(const Blocks<T>& blocks) {
  return CeilDiv(blocks.rows, kTileRows) * CeilDiv(blocks.columns, kTileColumns);
}

// The tile of this block of threads, and the packs of this thread: pack i has row(i) and columns
// from `column`.
template <typename T>
struct Tile {
  __device__ explicit Tile(const Blocks<T>& of) {
    const int across = int(CeilDiv(of.columns, kTileColumns));
    first_row = int(blockIdx.x) / across * kTileRows;
    first_column = int(blockIdx.x) % across * kTileColumns;
    column = first_column + int(threadIdx.x) % kAcross * kPack;
  }
  __device__ int row(int i) const { return first_row + int(threadIdx.x) / kAcross + i * kDown; }

  int first_row, first_column, column;
};

// Loads the numbers of a row from `column` on; beyond the matrix they are 0.
template <bool kPacked, typename T>
__device__ Pack<T, kPack> Load(const Blocks<T>& of, int row, int column) {
  const T* const from = of.x + int64_t(row) * of.columns + column;
  if constexpr (kPacked) {
    if (row < of.rows && column < of.columns) return LoadPack<T, kPack>(from);
    return {};
  } else {
    Pack<T, kPack> xs = {};
    for (int n = 0; n < kPack; ++n) {
      if (row < of.rows && column + n < of.columns) xs.v[n] = from[n];
    }
    return xs;
  }
}

// Numbers that are not negative are in the order of their bits.
template <typename A>
__device__ void RaiseTo(A* most, A x) {
  if constexpr (std::is_same_v<A, double>) {
    atomicMax(reinterpret_cast<unsigned long long*>(most), std::bit_cast<unsigned long long>(x));
  } else {
    atomicMax(reinterpret_cast<unsigned*>(most), std::bit_cast<unsigned>(x));
  }
}

// Which numbers of a tile share a scale.
enum class Sharing { kTile, kRow, kColumn, kOther };

template <typename T>
Sharing SharingOf(const Blocks<T>& of) {
  const bool tall = of.block_rows % kTileRows == 0 || of.block_rows >= of.rows;
  const bool wide = of.block_columns % kTileColumns == 0 || of.block_columns >= of.columns;
  if (tall && wide) return Sharing::kTile;
  if (of.block_rows == 1 && wide) return Sharing::kRow;
  if (of.block_columns == 1 && tall) return Sharing::kColumn;
  return Sharing::kOther;
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    AmaxKernel(Blocks<T> of, Sharing sharing, Accumulate<T>* amax) {
  using A = Accumulate<T>;
  const Tile<T> tile(of);
  Pack<T, kPack> xs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) xs[i] = Load<kPacked>(of, tile.row(i), tile.column);
  const auto size = [&](int i, int n) { return std::abs(A(xs[i].v[n])); };
  if (sharing == Sharing::kTile) {
    A most = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      for (int n = 0; n < kPack; ++n) most = Max()(most, size(i, n));
    }
    most = BlockReduce(most, Max(), A(0));
    if (threadIdx.x == 0) RaiseTo(amax + of.ScaleOf(tile.first_row, tile.first_column), most);
  } else if (sharing == Sharing::kRow) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      A most = 0;
      for (int n = 0; n < kPack; ++n) most = Max()(most, size(i, n));
      for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
        most = Max()(most, __shfl_xor_sync(kAllLanes, most, lanes));
      }
      if (threadIdx.x % kAcross != 0 || tile.row(i) >= of.rows) continue;
      RaiseTo(amax + of.ScaleOf(tile.row(i), tile.first_column), most);
    }
  } else if (sharing == Sharing::kColumn) {
    __shared__ A of_thread[kDown][kTileColumns];
    const int column = tile.column - tile.first_column;
    for (int n = 0; n < kPack; ++n) {
      A most = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) most = Max()(most, size(i, n));
      of_thread[threadIdx.x / kAcross][column + n] = most;
    }
    __syncthreads();
    if (int(threadIdx.x) >= kTileColumns || tile.first_column + int(threadIdx.x) >= of.columns) {
      return;
    }
    A most = 0;
    for (int i = 0; i < kDown; ++i) most = Max()(most, of_thread[i][threadIdx.x]);
    RaiseTo(amax + of.ScaleOf(tile.first_row, tile.first_column + int(threadIdx.x)), most);
  } else {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      for (int n = 0; n < kPack; ++n) {
        if (tile.row(i) >= of.rows || tile.column + n >= of.columns) continue;
        RaiseTo(amax + of.ScaleOf(tile.row(i), tile.column + n), Max()(A(0), size(i, n)));
      }
    }
  }
}

// As the CPU's: what numbers of at most `amax` are multiplied by.
template <typename A>
struct Factors {
  A largest;
  A* factors;
  A* scales;

  __device__ void Set(int64_t i, A amax) const {
    constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
    const A factor = amax == 0 ? A(1) : largest / Max()(amax, kLeast);
    factors[i] = factor;
    scales[i] = 1 / factor;
  }
};

template <typename A>
struct FactorBody {
  const A* amax;
  Factors<A> to;
  __device__ void operator()(int64_t i) const { to.Set(i, amax[i]); }
};

// One scale, of the greatest of `count` numbers. One block of threads.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    OneFactorKernel(const A* amax, int64_t count, Factors<A> to) {
  A most = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) most = Max()(most, amax[i]);
  most = BlockReduce(most, Max(), A(0));
  if (threadIdx.x == 0) to.Set(0, most);
}

// Where the rounded numbers go. Null: there is no such copy.
struct Copies {
  uint8_t* by_rows;
  uint8_t* by_columns;
};

// A tile of rounded numbers. The columns of each 16 rows are shifted by 32 bytes, so that lanes
// that read 4 x 16 rows of a column use different banks.
struct RoundedTile {
  alignas(kChunk) uint8_t bytes[kTileRows * kTileColumns];

  __device__ uint8_t* At(int row, int column) {
    return bytes + row * kTileColumns + (column ^ (row / kChunk % 4 * 32));
  }
};

template <typename Format, typename A>
__device__ void RoundPack(const A (&xs)[kPack], uint8_t* to) {
  static_assert(kPack == 8);
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    words[w] = RoundPair<Format>(xs[4 * w], xs[4 * w + 1]) |
               uint32_t{RoundPair<Format>(xs[4 * w + 2], xs[4 * w + 3])} << 16;
  }
  *reinterpret_cast<Pack<uint32_t, 2>*>(to) = {words[0], words[1]};
}

// Writes `chunk` to the elements from `first` on of a line of `length`. If not kPacked, only as far
// as the line goes.
template <bool kPacked>
__device__ void StoreChunk(uint8_t* line, int first, int length, const Words& chunk) {
  if constexpr (kPacked) {
    if (first < length) StoreWords(line + first, chunk);
  } else {
    for (int n = 0; n < kChunk && first + n < length; ++n) {
      line[first + n] = uint8_t(chunk.v[n / 4] >> (n % 4 * 8));
    }
  }
}

template <typename Format, typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(Blocks<T> of, const Accumulate<T>* factors, Copies copies) {
  using A = Accumulate<T>;
  __shared__ RoundedTile rounded;
  const Tile<T> tile(of);
  Pack<T, kPack> xs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) xs[i] = Load<kPacked>(of, tile.row(i), tile.column);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int row = std::min(tile.row(i), of.rows - 1);
    const int last = std::min(tile.column + kPack, of.columns) - 1;
    const int column = std::min(tile.column, last);
    const int64_t scale = of.ScaleOf(row, column);
    const bool shared = scale == of.ScaleOf(row, last);
    A scaled[kPack];
    for (int n = 0; n < kPack; ++n) {
      const int64_t own = shared ? scale : of.ScaleOf(row, std::min(column + n, last));
      scaled[n] = A(xs[i].v[n]) * factors[own];
    }
    RoundPack<Format>(scaled,
                      rounded.At(tile.row(i) - tile.first_row, tile.column - tile.first_column));
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = int(threadIdx.x) + i * kThreads;
    if (copies.by_rows != nullptr) {
      constexpr int kOfRow = kTileColumns / kChunk;
      const int row = chunk / kOfRow, column = chunk % kOfRow * kChunk;
      if (tile.first_row + row < of.rows) {
        StoreChunk<kPacked>(copies.by_rows + int64_t(tile.first_row + row) * of.columns,
                            tile.first_column + column, of.columns,
                            *reinterpret_cast<const Words*>(rounded.At(row, column)));
      }
    }
    if (copies.by_columns != nullptr) {
      constexpr int kOfColumn = kTileRows / kChunk;
      const int column = chunk / kOfColumn, row = chunk % kOfColumn * kChunk;
      if (tile.first_column + column < of.columns) {
        Words words = {};
#pragma unroll
        for (int n = 0; n < kChunk; ++n) {
          words.v[n / 4] |= uint32_t{*rounded.At(row + n, column)} << (n % 4 * 8);
        }
        StoreChunk<kPacked>(copies.by_columns + int64_t(tile.first_column + column) * of.rows,
                            tile.first_row + row, of.rows, words);
      }
    }
  }
}

template <typename Format, typename T>
void Round(Exec& exec, const QuantizeArgs& args) {
  using A = Accumulate<T>;
  const Blocks<T> of = BlocksOf<T>(args.x, args.block);
  const int64_t scales = args.scales.elements();
  A* const factors = ScratchOf<A>(exec, scales);
  const Factors<A> to = {A(Format::kLargest), factors, args.scales.as<A>()};
  const A* const amax = args.amax.as<A>();
  if (scales == 1) {
    Launch(exec, {1, kThreads}, OneFactorKernel<A>, amax, args.amax.elements(), to);
  } else {
    ForEach(exec, scales, FactorBody<A>{amax, to});
  }
  const Copies copies = {static_cast<uint8_t*>(args.y.data),
                         static_cast<uint8_t*>(args.by_columns.data)};
  const bool columns = copies.by_columns == nullptr || of.rows % kChunk == 0;
  const bool packed =
      columns && CanPack<uint8_t>(of.columns, of.x, copies.by_rows, copies.by_columns);
  const auto kernel = packed ? QuantizeKernel<Format, T, true> : QuantizeKernel<Format, T, false>;
  Launch(exec, {Tiles(of), kThreads}, kernel, of, factors, copies);
}

template <typename T>
void FindAmax(Exec& exec, const AmaxArgs& args) {
  using A = Accumulate<T>;
  const Blocks<T> of = BlocksOf<T>(args.x, args.block);
  A* const amax = args.amax.as<A>();
  ThrowIfError(cudaMemsetAsync(amax, 0, args.amax.bytes(), StreamOf(exec)), "amax");
  const bool packed = of.columns % kPack == 0 && CanPack<T>(of.columns, of.x);
  const auto kernel = packed ? AmaxKernel<T, true> : AmaxKernel<T, false>;
  Launch(exec, {Tiles(of), kThreads}, kernel, of, SharingOf(of), amax);
}

}  // namespace

void Amax(Exec& exec, const AmaxArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { FindAmax<decltype(scalar)>(exec, args); });
}

void Quantize(Exec& exec, const QuantizeArgs& args) {
  const DType dtype = args.y.data == nullptr ? args.by_columns.dtype : args.y.dtype;
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    DispatchNarrow(dtype,
                   [&](auto format) { Round<decltype(format), decltype(scalar)>(exec, args); });
  });
}

}  // namespace trainyard::cuda
