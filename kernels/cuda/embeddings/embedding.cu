// Forward copies rows and is bound by memory.
//
// Backward must add the gradients of a token's occurrences in order, without atomics. So it first
// sorts the positions by row of the table, with a stable radix sort by one block. This takes a few
// microseconds for each thousand tokens, less than the sums. Then each distinct row has one block
// for each slice of its columns. The block adds the row's occurrences in registers, with several
// loads in flight. It is bound by memory: gradients are read once, and dtable is read and written
// once, only where a token occurs.
//
// A token that pads sequences may make up half of a batch. Its occurrences must be added one after
// another, but can be loaded together. LongKernel adds such a long run. Its blocks have narrow
// slices and load many rows at a time.

#include <bit>

#include "kernels/cuda/context.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"
#include "kernels/embeddings/embedding.h"

namespace trainyard::cuda {
namespace {

struct Tokens {
  const int32_t* ids;
  int64_t first, rows, vocab;  // The slice.
  int64_t left_out;            // A token that counts as having no row.
  Failure fail = {};

  // Returns the row of the table for position t, or `rows` if the table does not have it.
  __device__ int64_t row(int64_t t) const {
    const int64_t v = ids[t] - first;
    return v >= 0 && v < rows && ids[t] != left_out ? v : rows;
  }
  __device__ void Check(int64_t t) const {
    if (ids[t] >= 0 && ids[t] < vocab) return;
    fail("embedding tokens: token % at %, the vocabulary has % ids", ids[t], t, vocab);
  }
};

Tokens TokensOf(const ConstTensor& tokens, const VocabSlice& slice, int64_t rows,
                int64_t left_out = -1) {
  return {tokens.as<int32_t>(), slice.first, rows, VocabOf(slice, rows), left_out};
}

template <typename T>
struct ForwardBody {
  const T* table;
  Tokens tokens;
  T* y;
  int64_t d;
  Accumulate<T> scale;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t i) const {
    if (i == 0) tokens.Check(t);
    const int64_t row = tokens.row(t);
    Pack<T, kCount> pack = {};
    if (row < tokens.rows) pack = LoadPack<T, kCount>(table + row * d + i);
    for (int n = 0; n < kCount; ++n) pack.v[n] = T(scale * Accumulate<T>(pack.v[n]));
    StoreRow(y + t * d + i, pack);
  }
};

// A position, and the row to which its gradient is added.
struct alignas(8) Entry {
  int32_t row, t;
};

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits, kSortWarps = 32;

// Sorts by the digit of the rows that starts at bit `shift`, and keeps the order of equal digits.
// Reads `tokens` instead of `from` for the lowest digit. One block: each warp counts the digits in
// its range of entries, and places its entries, in order, after smaller digits and after the same
// digit of the warps before.
__global__ void __launch_bounds__(kSortWarps* kWarp)
    SortKernel(Tokens tokens, int64_t count, int shift, const Entry* from, Entry* to) {
  __shared__ int32_t places[kSortWarps][kDigits + 1];  // The last is for lanes without an entry.
  const int thread = int(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int64_t share = CeilDiv(count, kSortWarps * kWarp) * kWarp, begin = warp * share;
  const int64_t end = begin + share < count ? begin + share : count;
  int32_t* const mine = places[warp];
  const auto entry_at = [&](int64_t i) {
    if (i >= end) return Entry{};
    return shift > 0 ? from[i] : Entry{int32_t(tokens.row(i)), int32_t(i)};
  };
  const auto digit_of = [&](const Entry& entry, int64_t i) {
    return i < end ? entry.row >> shift & (kDigits - 1) : kDigits;
  };

  for (int digit = lane; digit <= kDigits; digit += kWarp) mine[digit] = 0;
  __syncwarp();
  for (int64_t i = begin + lane; i - lane < end; i += kWarp) {
    if (shift == 0 && i < end) tokens.Check(i);
    const int digit = digit_of(entry_at(i), i);
    const unsigned same = __match_any_sync(kAllLanes, digit);
    if (lane == __ffs(int(same)) - 1) mine[digit] += __popc(same);
    __syncwarp();
  }
  __syncthreads();

  int32_t sum = 0;
  if (thread < kDigits) {
    for (int other = 0; other < kSortWarps; ++other) {
      const int32_t theirs = places[other][thread];
      places[other][thread] = sum;
      sum += theirs;
    }
  }
  int32_t all;
  const int32_t smaller = BlockScan(sum, &all) - sum;
  if (thread < kDigits) {
    for (int other = 0; other < kSortWarps; ++other) places[other][thread] += smaller;
  }
  __syncthreads();

  for (int64_t i = begin + lane; i - lane < end; i += kWarp) {
    const Entry entry = entry_at(i);
    const int digit = digit_of(entry, i);
    const unsigned same = __match_any_sync(kAllLanes, digit);
    const int place = mine[digit] + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (lane == __ffs(int(same)) - 1) mine[digit] += __popc(same);
    __syncwarp();
    if (i < end) to[place] = entry;
  }
}

// Returns the positions, sorted by row of the table, then by t.
const Entry* Sorted(Exec& exec, const Tokens& tokens, int64_t count) {
  Entry* to = ScratchOf<Entry>(exec, 2 * count);
  Entry* from = to + count;
  const int bits = std::bit_width(uint64_t(tokens.rows));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    Launch(exec, {1, kSortWarps * kWarp}, SortKernel, tokens, count, shift, from, to);
    std::swap(from, to);
  }
  return from;
}

// The rows that a block of LongKernel loads together. A run with more rows is long.
constexpr int kRound = 256;

template <typename T>
struct Gradient {
  using A = Accumulate<T>;
  const Entry* sorted;
  int64_t count, rows, d;
  int64_t slices;  // Slices of the columns, each kCount for each thread of a block.
  const T* dy;
  A* dtable;
  A scale;
  bool add;

  __device__ bool IsOf(int64_t i, int32_t row) const {
    return i >= 0 && i < count && sorted[i].row == row;
  }
  // Whether the run that begins at entry `begin` is long.
  __device__ bool IsLong(int64_t begin) const { return IsOf(begin + kRound, sorted[begin].row); }
};

template <int kCount, typename T>
__global__ void __launch_bounds__(128) SumKernel(Gradient<T> args) {
  using A = Accumulate<T>;
  constexpr int kAhead = 8;
  const Entry* sorted = args.sorted;
  for (int64_t i = blockIdx.x; i < args.count * args.slices; i += gridDim.x) {
    const int64_t begin = i / args.slices, slice = i % args.slices;
    const int64_t column = (slice * blockDim.x + threadIdx.x) * kCount;
    const int32_t row = sorted[begin].row;
    if (args.IsOf(begin - 1, row) || row == args.rows || column >= args.d) continue;
    if (args.IsLong(begin)) continue;
    A* const to = args.dtable + row * args.d + column;
    Pack<A, kCount> sum = {};
    if (args.add) sum = LoadPack<A, kCount>(to);
    bool more = true;
    for (int64_t at = begin; more; at += kAhead) {
      Pack<T, kCount> dys[kAhead];
      bool mine[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const Entry entry = at + k < args.count ? sorted[at + k] : Entry{-1, 0};
        mine[k] = entry.row == row;
        if (mine[k]) dys[k] = LoadPack<T, kCount>(args.dy + entry.t * args.d + column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        for (int n = 0; n < kCount && mine[k]; ++n) sum.v[n] += args.scale * A(dys[k].v[n]);
      }
      more = mine[kAhead - 1];
    }
    StorePack(to, sum);
  }
}

// Threads that load a part of a row, 16 bytes each. So each thread of a block of kRound threads
// loads kLanes times for kRound rows.
constexpr int kLanes = 8;

// Adds long runs. Each block has a slice of kLanes packs of columns, and an entry whose number is a
// multiple of kRound. Long runs have at least one such entry. The block of a run's first one adds
// the run.
template <int kCount, typename T>
__global__ void __launch_bounds__(kRound) LongKernel(Gradient<T> args) {
  using A = Accumulate<T>;
  constexpr int kColumns = kLanes * kCount;
  __shared__ int32_t ts[kRound];
  auto* const packs = DynamicShared<Pack<T, kCount>>();  // [kRound, kLanes]
  const int thread = int(threadIdx.x), lane = thread % kLanes;
  const int64_t slices = CeilDiv(args.d, kColumns), first = blockIdx.x % slices * kColumns;
  const int64_t entry = blockIdx.x / slices * kRound;
  const int32_t row = args.sorted[entry].row;
  if (row == args.rows || args.IsOf(entry - kRound, row)) return;
  const int64_t begin = entry - BlockSum(int(args.IsOf(entry - 1 - thread, row)));
  if (!args.IsLong(begin)) return;
  const bool loads = first + lane * kCount < args.d;
  const bool adds = thread < kColumns && first + thread < args.d;
  A* const to = args.dtable + row * args.d + first + thread;
  A sum = adds && args.add ? *to : A(0);
  int rows = kRound;
  for (int64_t at = begin; rows == kRound; at += kRound) {
    const bool mine = args.IsOf(at + thread, row);
    if (mine) ts[thread] = args.sorted[at + thread].t;
    rows = BlockSum(int(mine));  // Also waits for `ts`, and until the last packs have been added.
    Pack<T, kCount> loaded[kLanes] = {};
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const int r = (k * kRound + thread) / kLanes;
      if (loads && r < rows) {
        loaded[k] = LoadPack<T, kCount>(args.dy + ts[r] * args.d + first + lane * kCount);
      }
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) StorePack(packs[k * kRound + thread].v, loaded[k]);
    __syncthreads();
#pragma unroll 8
    for (int r = 0; r < rows && adds; ++r) {
      sum += args.scale * A(packs[r * kLanes + thread / kCount].v[thread % kCount]);
    }
  }
  if (adds) *to = sum;
}

template <typename T>
void Backward(Exec& exec, const EmbeddingBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t count = args.tokens.elements(), rows = args.dtable.shape.rows();
  const int64_t d = args.dy.shape.back();
  const T* dy = args.dy.as<T>();
  A* dtable = args.dtable.as<A>();
  const bool add = args.write == Write::kAdd, packed = CanPack<T>(d, dy, dtable);
  const int64_t packs = packed ? d / kPackOf<T> : d;
  const int threads = RowThreads(packs, 128);
  const Tokens tokens = TokensOf(args.tokens, args.slice, rows, args.padding);
  const Gradient<T> of = {.sorted = Sorted(exec, tokens, count),
                          .count = count,
                          .rows = rows,
                          .d = d,
                          .slices = CeilDiv(packs, threads),
                          .dy = dy,
                          .dtable = dtable,
                          .scale = A(T(args.scale)),
                          .add = add};
  if (!add) {
    ThrowIfError(cudaMemsetAsync(dtable, 0, args.dtable.bytes(), StreamOf(exec)), "embedding");
  }
  Launch(exec, {RowBlocks(count * of.slices), threads},
         packed ? SumKernel<kPackOf<T>, T> : SumKernel<1, T>, of);
  if (count <= kRound) return;
  const int64_t slices = CeilDiv(packs, kLanes);
  constexpr size_t kShared = kRound * kLanes * 16;
  Launch(exec, {CeilDiv(count, kRound) * slices, kRound, kShared},
         packed ? LongKernel<kPackOf<T>, T> : LongKernel<1, T>, of);
}

}  // namespace

void EmbeddingForward(Exec& exec, const EmbeddingForwardArgs& args) {
  CHECK(args.y.dtype == args.table.dtype) << "a table in " << args.table.dtype << " on a GPU";
  DispatchFloat(args.table.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t d = args.table.shape.back();
    const ForwardBody<T> body = {
        .table = args.table.as<T>(),
        .tokens = TokensOf(args.tokens, args.slice, args.table.shape.rows()),
        .y = args.y.as<T>(),
        .d = d,
        .scale = Accumulate<T>(T(args.scale))};
    ForEachPackOfRows<T>(exec, args.tokens.elements(), d, CanPack<T>(d, body.table, body.y), body);
  });
}

void EmbeddingBackward(Exec& exec, const EmbeddingBackwardArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cuda
