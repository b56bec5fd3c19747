// Worlds of every implementation, on threads, for tests that hold for all.

#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/local.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/testing/ranks.h"

namespace trainyard::testing {

// The ranks of a world, each for a thread of its own.
class Threads {
 public:
  virtual ~Threads() = default;
  virtual std::vector<CollectiveWorld*> worlds() const = 0;  // By rank.
};

class LocalThreads final : public Threads {
 public:
  explicit LocalThreads(int size) : world_(size) {}
  std::vector<CollectiveWorld*> worlds() const override {
    std::vector<CollectiveWorld*> worlds;
    for (int i = 0; i < world_.size(); ++i) worlds.push_back(&world_.world(i));
    return worlds;
  }

 private:
  LocalWorld world_;
};

inline std::vector<CollectiveWorld*> WorldsOf(
    const std::vector<std::unique_ptr<CollectiveWorld>>& ranks) {
  std::vector<CollectiveWorld*> worlds;
  for (const auto& rank : ranks) worlds.push_back(rank.get());
  return worlds;
}

class GlooThreads final : public Threads {
 public:
  explicit GlooThreads(int size, absl::Duration timeout = absl::Minutes(30))
      : ranks_(size_t(size)) {
    std::vector<std::thread> threads;
    for (int i = 0; i < size; ++i) {
      threads.emplace_back([&, i] {
        auto rank = CreateGlooWorld({.rank = i, .size = size, .timeout = timeout}, rendezvous_);
        EXPECT_TRUE(rank.ok()) << rank.status();
        if (rank.ok()) ranks_[size_t(i)] = *std::move(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ~GlooThreads() override {  // On threads, for each rank waits for the others.
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&rank] { rank.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<CollectiveWorld*> worlds() const override { return WorldsOf(ranks_); }

 private:
  MemoryRendezvous rendezvous_;
  std::vector<std::unique_ptr<CollectiveWorld>> ranks_;
};

enum class Kind { kLocal, kGloo, kNccl };

using KindAndSize = std::tuple<Kind, int>;

// Those that are linked: host_worlds.cc or nccl_worlds.cc. Tensors are the host's memory for
// either.
std::vector<Kind> TestedKinds();
std::vector<KindAndSize> TestedWorlds();
std::unique_ptr<Threads> NewThreads(Kind kind, int size);

inline std::string NameOf(Kind kind) {
  if (kind == Kind::kNccl) return "Nccl";
  return kind == Kind::kLocal ? "Local" : "Gloo";
}
inline auto EachTestedKind() { return ::testing::ValuesIn(TestedKinds()); }

class WorldsTest : public ::testing::TestWithParam<KindAndSize> {
 protected:
  WorldsTest() : threads_(NewThreads(std::get<0>(GetParam()), size())) {}
  int size() const { return std::get<1>(GetParam()); }
  std::vector<CollectiveWorld*> worlds() const { return threads_->worlds(); }

  const std::unique_ptr<Threads> threads_;
};
inline std::string NameOfWorld(const ::testing::TestParamInfo<KindAndSize>& info) {
  return absl::StrCat(NameOf(std::get<0>(info.param)), std::get<1>(info.param));
}

// Values whose sum depends on the order, so that equal bits mean equal order.
template <typename T>
std::vector<T> Data(int64_t elements, int rank) {
  std::vector<T> data;
  for (int64_t i = 0; i < elements; ++i) {
    data.push_back(T(1000 * Uniform(7, uint64_t(rank), uint64_t(i)) - 500));
  }
  return data;
}

// The sum over ranks of what part(rank) returns, in rank order.
template <typename T, typename F>
std::vector<T> SumOverRanks(int size, F&& part) {
  using A = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  std::vector<A> sum;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> next = part(rank);
    sum.resize(next.size());
    for (size_t i = 0; i < next.size(); ++i) sum[i] = rank == 0 ? A(next[i]) : sum[i] + A(next[i]);
  }
  return std::vector<T>(sum.begin(), sum.end());
}

template <typename T>
Tensor View(std::vector<T>& data) {
  return Tensor{{data.data(), DTypeOf<T>::value, Shape{int64_t(data.size())}}};
}
template <typename T>
ConstTensor View(const std::vector<T>& data) {
  return {data.data(), DTypeOf<T>::value, Shape{int64_t(data.size())}};
}
// Elements [begin, begin + elements) of it.
template <typename T>
Tensor View(std::vector<T>& data, int64_t begin, int64_t elements) {
  return Tensor{{data.data() + begin, DTypeOf<T>::value, Shape{elements}}};
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
std::vector<T> SliceOf(const std::vector<T>& data, int64_t begin, int64_t elements) {
  return {data.begin() + begin, data.begin() + begin + elements};
}

}  // namespace trainyard::testing
