// Bound by memory: a number is read once, and written once for each copy of the matrix. A block of
// threads takes a tile of 64 x 128 numbers. Tiles pass through shared memory, so that both copies
// are written in accesses of 16 bytes: a row of the tile, and a column of it. docs/performance.md
// has the instructions that a number takes, for each recipe.

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
constexpr unsigned kHalf = kThreads / 2;       // Threads that write one of the copies.

// A matrix, and the numbers of it that share a scale. Dims are below 2^31.
template <typename T>
struct Blocks {
  const T* x;
  int rows, columns;
  int block_rows, block_columns;  // Real sizes.
  int across;                     // Scales of a row of blocks.

  // Unsigned division takes fewer instructions.
  __device__ int64_t ScaleOf(unsigned row, unsigned column) const {
    return int64_t(row / unsigned(block_rows)) * across + column / unsigned(block_columns);
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
    const unsigned across = (unsigned(of.columns) + kTileColumns - 1) / kTileColumns;
    first_row = int(blockIdx.x / across * kTileRows);
    first_column = int(blockIdx.x % across * kTileColumns);
    column = first_column + int(threadIdx.x % kAcross * kPack);
    first = of.x + int64_t(row(0)) * of.columns + column;
    step = int64_t(of.columns) * kDown;
  }
  __device__ int row(int i) const { return first_row + int(threadIdx.x / kAcross) + i * kDown; }

  int first_row, first_column, column;
  const T* first;  // Pack 0.
  int64_t step;    // From a pack to the next.
};

// The neighbouring numbers of a row that a thread has, in registers.
template <typename T>
class RowNumbers {
 public:
  static constexpr int kOfAccess = kPackOf<T>, kAccesses = kPack / kOfAccess;

  __device__ void Load(const T* from) {
    for (int i = 0; i < kAccesses; ++i) held_.Load(from, i * kOfAccess, i);
  }
  __device__ void Set(const T (&xs)[kPack]) {
    for (int i = 0; i < kAccesses; ++i) {
      Pack<T, kOfAccess> pack;
      for (int n = 0; n < kOfAccess; ++n) pack.v[n] = xs[i * kOfAccess + n];
      held_.Set(i, pack);
    }
  }
  __device__ Accumulate<T> at(int n) const { return held_.at(n / kOfAccess, n % kOfAccess); }

 private:
  HeldRow<T, kAccesses> held_;
};

// Loads pack i of the tile; beyond the matrix its numbers are 0.
template <bool kPacked, typename T>
__device__ RowNumbers<T> Load(const Blocks<T>& of, const Tile<T>& tile, int i) {
  const T* const from = tile.first + i * tile.step;
  RowNumbers<T> numbers;
  if constexpr (kPacked) {
    if (tile.row(i) < of.rows && tile.column < of.columns) numbers.Load(from);
  } else {
    T xs[kPack] = {};
    for (int n = 0; n < kPack; ++n) {
      if (tile.row(i) < of.rows && tile.column + n < of.columns) xs[n] = from[n];
    }
    numbers.Set(xs);
  }
  return numbers;
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
  RowNumbers<T> xs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) xs[i] = Load<kPacked>(of, tile, i);
  // Passes over what is no number.
  const auto raise = [&](A most, int i, int n) { return std::fmax(most, std::abs(xs[i].at(n))); };
  if (sharing == Sharing::kTile) {
    A most = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      for (int n = 0; n < kPack; ++n) most = raise(most, i, n);
    }
    most = BlockReduce(most, Max(), A(0));
    if (threadIdx.x == 0) RaiseTo(amax + of.ScaleOf(tile.first_row, tile.first_column), most);
  } else if (sharing == Sharing::kRow) {
    A* const of_first = amax + of.ScaleOf(tile.row(0), tile.first_column);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      A most = 0;
      for (int n = 0; n < kPack; ++n) most = raise(most, i, n);
      for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
        most = std::fmax(most, __shfl_xor_sync(kAllLanes, most, lanes));
      }
      if (threadIdx.x % kAcross != 0 || tile.row(i) >= of.rows) continue;
      RaiseTo(of_first + int64_t(i * kDown) * of.across, most);
    }
  } else if (sharing == Sharing::kColumn) {
    __shared__ A of_thread[kDown][kTileColumns];
    const int column = tile.column - tile.first_column;
    for (int n = 0; n < kPack; ++n) {
      A most = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) most = raise(most, i, n);
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
        RaiseTo(amax + of.ScaleOf(tile.row(i), tile.column + n), raise(0, i, n));
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

  __device__ uint8_t* At(unsigned row, unsigned column) {
    return bytes + row * kTileColumns + (column ^ (row / kChunk % 4 * 32));
  }
};

template <typename Format, bool kFinite, typename A>
__device__ void StoreRounded(const A (&xs)[kPack], uint8_t* to) {
  static_assert(kPack == 8);
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    words[w] = RoundPair<Format, kFinite>(xs[4 * w], xs[4 * w + 1]) |
               RoundPair<Format, kFinite>(xs[4 * w + 2], xs[4 * w + 3]) << 16;
  }
  *reinterpret_cast<Pack<uint32_t, 2>*>(to) = {words[0], words[1]};
}

template <typename Format, typename A>
__device__ void RoundPack(const A (&xs)[kPack], uint8_t* to) {
  A special = 0;  // NaN if one of the numbers is not finite.
#pragma unroll
  for (const A x : xs) special += x * A(0);
  if (special == 0) {
    StoreRounded<Format, true>(xs, to);
  } else {
    StoreRounded<Format, false>(xs, to);
  }
}

// What the numbers of a thread's packs are multiplied by, if the tile's numbers share factors. All
// factors are loaded at once.
template <typename T, Sharing kSharing>
class TileFactors {
 public:
  using A = Accumulate<T>;
  static_assert(kSharing != Sharing::kOther);

  __device__ TileFactors(const Blocks<T>& of, const Tile<T>& tile, const A* factors) {
    const A* const from = factors + of.ScaleOf(tile.first_row, tile.first_column);
    if constexpr (kSharing == Sharing::kTile) {
      held_[0] = from[0];
    } else if constexpr (kSharing == Sharing::kRow) {
      for (int i = 0; i < kPacks; ++i) {
        const int row = std::min(tile.row(i), of.rows - 1) - tile.first_row;
        held_[i] = from[int64_t(row) * of.across];
      }
    } else if (tile.column < of.columns) {
      const auto pack = LoadPack<A, kPack>(from + tile.column - tile.first_column);
      for (int n = 0; n < kPack; ++n) held_[n] = pack.v[n];
    }
  }
  // Of number n of pack i.
  __device__ A at(int i, int n) const {
    return held_[kSharing == Sharing::kRow ? i : kSharing == Sharing::kColumn ? n : 0];
  }

 private:
  A held_[kSharing == Sharing::kRow ? kPacks : kSharing == Sharing::kColumn ? kPack : 1] = {};
};

// Factors of blocks of any other size.
template <typename T>
class TileFactors<T, Sharing::kOther> {
 public:
  using A = Accumulate<T>;

  __device__ TileFactors(const Blocks<T>& of, const Tile<T>& tile, const A* factors)
      : of_(of), tile_(tile), factors_(factors) {}
  __device__ A at(int i, int n) const {
    const int row = std::min(tile_.row(i), of_.rows - 1);
    return factors_[of_.ScaleOf(row, std::min(tile_.column + n, of_.columns - 1))];
  }

 private:
  const Blocks<T>& of_;
  const Tile<T>& tile_;
  const A* factors_;
};

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

// A matrix of 4 x 4 bytes, whose rows are words, becomes its transpose.
__device__ inline void Transpose(uint32_t (&rows)[4]) {
  const uint32_t left_upper = __byte_perm(rows[0], rows[1], 0x5140);
  const uint32_t left_lower = __byte_perm(rows[2], rows[3], 0x5140);
  const uint32_t right_upper = __byte_perm(rows[0], rows[1], 0x7362);
  const uint32_t right_lower = __byte_perm(rows[2], rows[3], 0x7362);
  rows[0] = __byte_perm(left_upper, left_lower, 0x5410);
  rows[1] = __byte_perm(left_upper, left_lower, 0x7632);
  rows[2] = __byte_perm(right_upper, right_lower, 0x5410);
  rows[3] = __byte_perm(right_upper, right_lower, 0x7632);
}

// The rows of a tile, by kHalf threads.
template <bool kPacked, typename T>
__device__ void StoreRows(const Blocks<T>& of, const Tile<T>& tile, RoundedTile& rounded,
                          unsigned thread, uint8_t* to) {
  constexpr unsigned kOfRow = kTileColumns / kChunk, kRows = kHalf / kOfRow;
  const unsigned first = thread / kOfRow, column = thread % kOfRow * kChunk;
  uint8_t* const line = to + int64_t(tile.first_row + int(first)) * of.columns;
#pragma unroll
  for (unsigned i = 0; i < kTileRows / kRows; ++i) {
    const unsigned row = first + i * kRows;
    if (tile.first_row + int(row) >= of.rows) continue;
    StoreChunk<kPacked>(line + int64_t(i * kRows) * of.columns, tile.first_column + int(column),
                        of.columns, *reinterpret_cast<const Words*>(rounded.At(row, column)));
  }
}

// The columns of a tile, by kHalf threads. Each has 4 columns of kChunk rows, and reads and
// transposes them as words. Neighbouring threads write neighbouring chunks of a column.
template <bool kPacked, typename T>
__device__ void StoreColumns(const Blocks<T>& of, const Tile<T>& tile, RoundedTile& rounded,
                             unsigned thread, uint8_t* to) {
  constexpr unsigned kOfColumn = kTileRows / kChunk;
  static_assert(kTileColumns / 4 * kOfColumn == kHalf);
  const unsigned column = thread / kOfColumn * 4, row = thread % kOfColumn * kChunk;
  const uint8_t* const from = rounded.At(row, column);  // The same shift for all kChunk rows.
  Words lines[4];
#pragma unroll
  for (int w = 0; w < kChunk / 4; ++w) {
    uint32_t words[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      words[n] = *reinterpret_cast<const uint32_t*>(from + (4 * w + n) * kTileColumns);
    }
    Transpose(words);
#pragma unroll
    for (int n = 0; n < 4; ++n) lines[n].v[w] = words[n];
  }
  const int first = tile.first_column + int(column);
  uint8_t* const line = to + int64_t(first) * of.rows;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    if (first + n >= of.columns) continue;
    StoreChunk<kPacked>(line + int64_t(n) * of.rows, tile.first_row + int(row), of.rows, lines[n]);
  }
}

template <typename Format, typename T, Sharing kSharing, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(Blocks<T> of, const Accumulate<T>* factors, Copies copies) {
  using A = Accumulate<T>;
  __shared__ RoundedTile rounded;
  const Tile<T> tile(of);
  RowNumbers<T> xs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) xs[i] = Load<kPacked>(of, tile, i);
  const TileFactors<T, kSharing> of_packs(of, tile, factors);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    A scaled[kPack];
#pragma unroll
    for (int n = 0; n < kPack; ++n) scaled[n] = xs[i].at(n) * of_packs.at(i, n);
    RoundPack<Format>(scaled,
                      rounded.At(tile.row(i) - tile.first_row, tile.column - tile.first_column));
  }
  __syncthreads();
  if (threadIdx.x >= kHalf) {
    if (copies.by_rows == nullptr) return;
    StoreRows<kPacked>(of, tile, rounded, threadIdx.x - kHalf, copies.by_rows);
  } else if (copies.by_columns != nullptr) {
    StoreColumns<kPacked>(of, tile, rounded, threadIdx.x, copies.by_columns);
  }
}

template <typename Format, typename T>
using Quantizing = void (*)(Blocks<T>, const Accumulate<T>*, Copies);

// Only the dtype of training has a kernel for each way to share scales.
template <typename Format, typename T>
Quantizing<Format, T> KernelFor(Sharing sharing, bool packed) {
  using enum Sharing;
  if constexpr (std::is_same_v<T, bf16>) {
    if (packed && sharing == kTile) return QuantizeKernel<Format, T, kTile, true>;
    if (packed && sharing == kRow) return QuantizeKernel<Format, T, kRow, true>;
    if (packed && sharing == kColumn) return QuantizeKernel<Format, T, kColumn, true>;
  }
  return packed ? QuantizeKernel<Format, T, kOther, true>
                : QuantizeKernel<Format, T, kOther, false>;
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
  Launch(exec, {Tiles(of), kThreads}, KernelFor<Format, T>(SharingOf(of), packed), of, factors,
         copies);
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
