// How the kernels of norms go through the rows of a matrix. A block takes a row, and its threads
// take the packs of the row in turn. A thread keeps at most kHeld packs in registers from the row's
// statistics to its outputs, so that memory is read once. kHeld = 0 is for rows of any width and
// alignment: they are read element by element, and again for the outputs.

#pragma once

#include <bit>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

constexpr int kMostRowThreads = 256;

template <typename T, int kHeld>
constexpr int kRowPack = kHeld > 0 ? kPackOf<T> : 1;

// 16 bytes of any type. Compilers keep each bf16 in its own register, and split a conditional store
// of a pack; they do neither with words. tests/cuda_code checks this.
struct __attribute__((may_alias, aligned(16))) Words {
  uint32_t v[4];
};
__device__ inline Words WordsOf(const Pack<bf16, 8>& pack) {
  Words words;
  for (int i = 0; i < 4; ++i) {
    words.v[i] = pack.v[2 * i].bits | uint32_t{pack.v[2 * i + 1].bits} << 16;
  }
  return words;
}
__device__ inline Words WordsOf(const Pack<float, 4>& pack) { return std::bit_cast<Words>(pack); }
__device__ inline Words WordsOf(const Pack<double, 2>& pack) { return std::bit_cast<Words>(pack); }

// Two bf16 in one word, for the same reason.
struct __attribute__((may_alias)) Word {
  uint32_t v;
};

// Stores 16 bytes to global memory in one access.
__device__ inline void StoreWords(void* to, const Words& words) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words.v[0]), "r"(words.v[1]), "r"(words.v[2]), "r"(words.v[3])
               : "memory");
#else
  *static_cast<Words*>(to) = words;
#endif
}

// Stores a pack to global memory in one access.
template <typename T, int kCount>
__device__ void StoreRow(T* to, const Pack<T, kCount>& pack) {
  if constexpr (sizeof(pack) == sizeof(Words)) {
    StoreWords(to, WordsOf(pack));
  } else if constexpr (std::is_same_v<T, bf16> && kCount == 2) {
    *reinterpret_cast<Word*>(to) = {pack.v[0].bits | uint32_t{pack.v[1].bits} << 16};
  } else {
    StorePack(to, pack);
  }
}

// A thread's part of a row.
template <typename T, int kHeld>
class HeldRow {
 public:
  static constexpr int kCount = kRowPack<T, kHeld>;

  // Loads pack n of this thread, which begins at element i of `row`.
  __device__ void Load(const T* row, int64_t i, int n) {
    kept_[n] = *reinterpret_cast<const Kept*>(row + i);
  }
  // Does nothing if rows are held in registers.
  __device__ void Reload(const T* row, int64_t i, int n) {
    if constexpr (kHeld == 0) Load(row, i, n);
  }
  __device__ void Set(int n, const Pack<T, kCount>& pack) {
    if constexpr (kPairs) {
      kept_[n] = WordsOf(pack);
    } else {
      kept_[n] = pack;
    }
  }
  // Stores pack n to any memory, as it is.
  __device__ void Save(T* row, int64_t i, int n) const {
    *reinterpret_cast<Kept*>(row + i) = kept_[n];
  }
  // The same to global memory, in one access.
  __device__ void Store(T* row, int64_t i, int n) const {
    if constexpr (kPairs) {
      StoreWords(row + i, kept_[n]);
    } else {
      StoreRow(row + i, kept_[n]);
    }
  }
  __device__ Accumulate<T> at(int n, int k) const {
    if constexpr (kPairs) {
      const uint32_t word = kept_[n].v[k / 2];
      return std::bit_cast<float>(k % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else {
      return Accumulate<T>(kept_[n].v[k]);
    }
  }

 private:
  static constexpr bool kPairs = std::is_same_v<T, bf16> && kHeld > 0;
  using Kept = std::conditional_t<kPairs, Words, Pack<T, kCount>>;

  Kept kept_[kHeld > 0 ? kHeld : 1] = {};
};

// A row that a thread reads again where it uses it, pack by pack, because it has no registers left:
// gains and biases, which caches hold.
template <typename T, int kHeld>
class ReloadedRow {
 public:
  static constexpr int kCount = kRowPack<T, kHeld>;

  __device__ void Load(const T*, int64_t, int) {}
  __device__ void Reload(const T* row, int64_t i, int) { pack_.Load(row, i, 0); }
  __device__ Accumulate<T> at(int, int k) const { return pack_.at(0, k); }

 private:
  HeldRow<T, kHeld> pack_;
};

// The columns of a row, and this thread's number among the threads that share it: those of a block,
// or some lanes.
struct SharedRow {
  __device__ SharedRow(int64_t columns) : SharedRow(columns, int(threadIdx.x), int(blockDim.x)) {}
  __device__ SharedRow(int64_t columns, int thread, int threads)
      : columns(columns), thread(thread), threads(threads) {}
  int64_t columns;
  int thread, threads;
};

// Calls load(i, n), then use(i, n), for each of this thread's packs; pack n begins at element i. If
// packs are held, all loads come first, so that they are under way together.
template <typename T, int kHeld, typename Load, typename Use>
__device__ void ForRow(const SharedRow& row, const Load& load, const Use& use) {
  constexpr int kCount = kRowPack<T, kHeld>;
  const int first = row.thread * kCount, step = row.threads * kCount;
  if constexpr (kHeld > 0) {
    const int columns = int(row.columns);
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
      if (first + n * step < columns) load(first + n * step, n);
    }
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
      if (first + n * step < columns) use(first + n * step, n);
    }
  } else {
    for (int64_t i = first; i < row.columns; i += step) {
      load(i, 0);
      use(i, 0);
    }
  }
}

template <typename T, int kHeld, typename Use>
__device__ void ForRow(const SharedRow& row, const Use& use) {
  ForRow<T, kHeld>(row, use, [](int64_t, int) {});
}

// The input of a norm: x, or x + addend, rounded as it is stored in `sum`.
template <typename T>
struct Residual {
  const T* x;
  const T* addend;  // Null: there is no addend and no sum.
  T* sum;

  Residual(const ConstTensor& x, const ConstTensor& addend, const Tensor& sum)
      : x(x.as<T>()),
        addend(addend.data == nullptr ? nullptr : addend.as<T>()),
        sum(addend.data == nullptr ? nullptr : sum.as<T>()) {}

  __device__ const T* kept() const { return addend == nullptr ? x : sum; }

  // Fills `h` with the row that begins at element `row`, writes its sum, and calls use(i, n).
  template <int kHeld, typename Use>
  __device__ void Row(int64_t row, int64_t columns, HeldRow<T, kHeld>& h, const Use& use) const {
    HeldRow<T, kHeld> more;
    const auto load = [&](int64_t i, int n) {
      h.Load(x + row, i, n);
      if (addend != nullptr) more.Load(addend + row, i, n);
    };
    ForRow<T, kHeld>(columns, load, [&](int64_t i, int n) {
      if (addend != nullptr) {
        Pack<T, h.kCount> rounded;
        for (int k = 0; k < h.kCount; ++k) rounded.v[k] = T(h.at(n, k) + more.at(n, k));
        StoreRow(sum + row + i, rounded);
        h.Set(n, rounded);
      }
      use(i, n);
    });
  }
};

// A thread's sums over the rows of a run. They are in registers if kInShared is 0. Otherwise they
// are in the dynamic shared memory of a block of at most kInShared threads. If rows are not held,
// they are in the memory of the result. Number `i` of the block's several sums; each has kHeld *
// kCount * kInShared elements of shared memory.
template <typename T, int kHeld, int kInShared = 0>
class HeldSums {
 public:
  using A = Accumulate<T>;
  static constexpr int kCount = kRowPack<T, kHeld>;

  __device__ HeldSums(A* run, int64_t columns, int i = 0) : run_(run) {
    if constexpr (kHeld == 0) ForRow<T, 0>(columns, [&](int64_t c, int) { run_[c] = 0; });
    if constexpr (kShared) {
      shared_ = DynamicShared<A>() + i * kHeld * kCount * kInShared + int(threadIdx.x);
      for (int n = 0; n < kHeld * kCount; ++n) shared_[n * kInShared] = 0;
    }
  }
  // Adds to element k of pack n, which is column i + k.
  __device__ void Add(int64_t i, int n, int k, A term) {
    if constexpr (kHeld == 0) {
      run_[i] += term;
    } else {
      at(n, k) += term;
    }
  }
  __device__ void Store(int64_t columns) {
    if constexpr (kHeld > 0) {
      ForRow<T, kHeld>(columns, [&](int64_t i, int n) {
        constexpr int kPart = kPackOf<A>;
        for (int k = 0; k < kCount; k += kPart) {
          Pack<A, kPart> part;
          for (int j = 0; j < kPart; ++j) part.v[j] = at(n, k + j);
          StoreRow(run_ + i + k, part);
        }
      });
    }
  }

 private:
  static constexpr bool kShared = kHeld > 0 && kInShared > 0;
  static constexpr bool kRegisters = kHeld > 0 && kInShared == 0;

  // No thread reads another's sums. Neighbouring threads are in different banks.
  __device__ A& at(int n, int k) {
    if constexpr (kShared) {
      return shared_[(n * kCount + k) * kInShared];
    } else {
      return sums_[n][k];
    }
  }

  A* run_;
  A* shared_ = nullptr;
  A sums_[kRegisters ? kHeld : 1][kRegisters ? kCount : 1] = {};
};

struct RowPlan {
  int held;
  int threads;
};

// How many blocks of kMostRowThreads threads a multiprocessor runs at once: of a kernel's forms
// with 0, 1, 2, 4 and 8 packs a thread. Registers limit them, and the kernel's __launch_bounds__
// hold the compiler to them. Forms with more threads, and those of f64, have one block.
template <typename T, int... kBlocks>
struct Resident {
  static constexpr int of(int held, int threads = kMostRowThreads) {
    constexpr int kOf[] = {kBlocks...};
    if (threads > kMostRowThreads || std::is_same_v<T, double>) return 1;
    return kOf[std::bit_width(unsigned(held))];
  }

  // The blocks that fill the chip once. With more, the last of them would run on a chip that is
  // almost empty.
  static int64_t Wave(const RowPlan& plan) {
    constexpr int kMostBlocks = 32;  // Of a multiprocessor, in compute capability 9.0.
    const int blocks = of(plan.held, plan.threads) * kMostRowThreads / plan.threads;
    return kMultiprocessors * int64_t(std::clamp(blocks, 1, kMostBlocks));
  }
};

// Plans rows of `columns` elements at all of these addresses, with at most kMostHeld packs a
// thread. kMostThreads: of the kernel's form for wide rows, whose threads have fewer registers.
template <typename T, int kMostHeld, int kMostThreads = kMostRowThreads, typename... Pointers>
RowPlan PlanRows(int64_t columns, const Pointers*... pointers) {
  const auto whole_warps = [](int64_t threads) { return int(CeilDiv(threads, kWarp)) * kWarp; };
  if (CanPack<T>(columns, pointers...)) {
    const int64_t packs = columns / kPackOf<T>;
    for (int held = 1; held <= kMostHeld; held *= 2) {
      const int64_t threads = CeilDiv(packs, held);
      const int most = held == kMostHeld ? kMostThreads : kMostRowThreads;
      if (threads <= most) return {held, whole_warps(threads)};
    }
  }
  return {0, int(std::min<int64_t>(whole_warps(CeilDiv(columns, 8)), kMostRowThreads))};
}

// Calls f with std::integral_constant<int, held>.
template <int kMostHeld, typename F>
void DispatchHeld(int held, const F& f) {
  if (held == kMostHeld) return f(std::integral_constant<int, kMostHeld>());
  if constexpr (kMostHeld > 0) DispatchHeld<kMostHeld / 2>(held, f);
}

// The same for kernels that have a form for wide rows: f also gets the most threads of the form.
template <int kMostHeld, int kMostThreads, typename F>
void DispatchRows(const RowPlan& plan, const F& f) {
  if (plan.threads > kMostRowThreads) {
    return f(std::integral_constant<int, kMostHeld>(), std::integral_constant<int, kMostThreads>());
  }
  DispatchHeld<kMostHeld>(
      plan.held, [&](auto held) { f(held, std::integral_constant<int, kMostRowThreads>()); });
}

}  // namespace trainyard::cuda
