#include "kernels/collective/local.h"

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "common/check.h"
#include "kernels/collective/reduce.h"

namespace trainyard {

// Where the ranks meet for each operation: all arrive, each does its share of the work, all leave.
// Once all have arrived nothing can stop the operation, so nobody's tensor goes away under a
// reader.
struct LocalGroup::Meeting {
  explicit Meeting(int size) : tensors(size_t(size)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> tensors;  // By rank, of the operation under way.
  int arrived = 0;
  int working = 0;       // Ranks that have not finished their share.
  uint64_t round = 0;    // Operations begun, which is when all have arrived.
  bool aborted = false;  // For good.
};

class LocalGroup::Rank final : public Collective {
 public:
  Rank(int rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}

  int rank() const override { return rank_; }
  int size() const override { return int(meeting_.tensors.size()); }

  void AllReduceSum(Tensor data) override { Reduce(data, SumInRankOrder); }
  void AllReduceMax(Tensor data) override { Reduce(data, MaxInRankOrder); }

  void Broadcast(Tensor data, int root) override {
    CHECK(root >= 0 && root < size()) << "root " << root << " of " << size();
    Arrive(data);
    const Tensor& from = meeting_.tensors[size_t(root)];
    CheckSame(from, data);
    if (rank_ != root && data.bytes() > 0) std::memcpy(data.data, from.data, data.bytes());
    Leave();
  }

  void Barrier() override {
    Arrive(Tensor{{nullptr, DType::kI64, Shape{0}}});
    Leave();
  }

  void Abort() override {
    const std::lock_guard lock(meeting_.mutex);
    meeting_.aborted = true;
    meeting_.changed.notify_all();
  }

 private:
  using Combine = void (*)(std::span<const void* const>, DType, int64_t, void*);

  // Each rank combines its slice of all tensors and writes it to all of them.
  void Reduce(Tensor data, Combine combine) {
    Arrive(data);
    const int64_t begin = data.elements() * rank_ / size();
    const int64_t elements = data.elements() * (rank_ + 1) / size() - begin;
    const size_t offset = size_t(begin) * SizeOf(data.dtype);
    std::vector<const void*> parts;
    for (const Tensor& tensor : meeting_.tensors) {
      CheckSame(tensor, data);
      parts.push_back(static_cast<const std::byte*>(tensor.data) + offset);
    }
    if (elements > 0) {
      std::byte* mine = static_cast<std::byte*>(data.data) + offset;
      combine(parts, data.dtype, elements, mine);
      for (const Tensor& tensor : meeting_.tensors) {
        std::byte* to = static_cast<std::byte*>(tensor.data) + offset;
        if (to != mine) std::memcpy(to, mine, size_t(elements) * SizeOf(data.dtype));
      }
    }
    Leave();
  }

  void CheckSame(const Tensor& a, const Tensor& b) const {
    CHECK(a.dtype == b.dtype && a.shape == b.shape)
        << "ranks disagree: " << a.dtype << a.shape << " and " << b.dtype << b.shape;
  }

  // Returns once all ranks have arrived.
  void Arrive(const Tensor& data) {
    std::unique_lock lock(meeting_.mutex);
    if (meeting_.aborted) Throw();
    meeting_.tensors[size_t(rank_)] = data;
    const uint64_t round = meeting_.round;
    if (++meeting_.arrived == size()) {
      meeting_.arrived = 0;
      meeting_.working = size();
      ++meeting_.round;
      meeting_.changed.notify_all();
      return;
    }
    meeting_.changed.wait(lock, [&] { return meeting_.round != round || meeting_.aborted; });
    if (meeting_.round == round) Throw();
  }

  // Returns once all ranks have done their share.
  void Leave() {
    std::unique_lock lock(meeting_.mutex);
    if (--meeting_.working == 0) meeting_.changed.notify_all();
    // It stays zero until this rank, too, has arrived for the next operation.
    meeting_.changed.wait(lock, [&] { return meeting_.working == 0; });
  }

  [[noreturn]] void Throw() const {
    throw DeviceError(DeviceError::Kind::kPeerLost, "a rank of the group has aborted");
  }

  const int rank_;
  Meeting& meeting_;
};

LocalGroup::LocalGroup(int size) : meeting_(std::make_unique<Meeting>(size)) {
  for (int i = 0; i < size; ++i) ranks_.push_back(std::make_unique<Rank>(i, *meeting_));
}
LocalGroup::~LocalGroup() = default;

}  // namespace trainyard
