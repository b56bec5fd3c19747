#include "train/data/packed_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/permutation.h"

namespace trainyard {
namespace {

// The key of a group's or an epoch's permutation.
uint64_t KeyOf(uint64_t key, const char* what, int64_t epoch, int64_t group = 0) {
  return RandomBits(RandomBits(key, HashName(what), uint64_t(epoch)), 0, uint64_t(group));
}

// The room that is left in samples, as a tree: a node has the most that any sample below it has.
class Rooms {
 public:
  Rooms(size_t most, int32_t capacity)
      : leaves_(std::bit_ceil(most)), tree_(2 * leaves_, capacity) {}

  // Takes room from the first sample that has as much. There is one, since samples are as many as
  // documents.
  int32_t Take(int32_t length) {
    size_t node = 1;
    while (node < leaves_) node = 2 * node + (tree_[2 * node] >= length ? 0 : 1);
    const int32_t sample = int32_t(node - leaves_);
    tree_[node] -= length;
    for (node /= 2; node > 0; node /= 2) {
      tree_[node] = std::max(tree_[2 * node], tree_[2 * node + 1]);
    }
    return sample;
  }

 private:
  const size_t leaves_;
  std::vector<int32_t> tree_;
};

int32_t SamplesOf(std::span<const int32_t> samples) {
  return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end()) + 1;
}

}  // namespace

std::vector<int32_t> FirstFit(std::span<const int32_t> lengths, int32_t capacity) {
  std::vector<int32_t> samples;
  if (lengths.empty()) return samples;
  Rooms rooms(lengths.size(), capacity);
  samples.reserve(lengths.size());
  for (const int32_t length : lengths) {
    CHECK(length >= 1 && length <= capacity) << length << " of " << capacity;
    samples.push_back(rooms.Take(length));
  }
  return samples;
}

PackedOrder::PackedOrder(int64_t documents, int32_t capacity, uint64_t key,
                         ReadLengths read_lengths)
    : documents_(documents),
      capacity_(capacity),
      key_(key),
      read_lengths_(std::move(read_lengths)) {
  CHECK(documents > 0 && capacity > 0) << documents << ", " << capacity;
}

absl::StatusOr<PackedOrder::Group> PackedOrder::ReadGroup(int64_t epoch, int64_t group) const {
  const uint64_t key = KeyOf(key_, "data/documents", epoch);
  const int64_t begin = group * kPackedGroup, end = std::min(documents_, begin + kPackedGroup);
  Group read{.epoch = epoch, .group = group, .documents = {}, .lengths = {}, .samples = {}};
  for (int64_t place = begin; place < end; ++place) {
    read.documents.push_back(Unpermute(key, documents_, place));
  }
  read.lengths.resize(read.documents.size());
  RETURN_IF_ERROR(read_lengths_(read.documents, read.lengths));
  size_t kept = 0;
  for (size_t i = 0; i < read.documents.size(); ++i) {
    if (read.lengths[i] == 0) continue;
    read.documents[kept] = read.documents[i];
    read.lengths[kept++] = read.lengths[i];
  }
  read.documents.resize(kept);
  read.lengths.resize(kept);
  read.samples = FirstFit(read.lengths, capacity_);
  return read;
}

absl::StatusOr<std::shared_ptr<const PackedOrder::Group>> PackedOrder::GroupOf(
    int64_t epoch, int64_t group) const {
  {
    MutexLock lock(mutex_);
    if (last_ != nullptr && last_->epoch == epoch && last_->group == group) return last_;
  }
  ASSIGN_OR_RETURN(Group read, ReadGroup(epoch, group));
  auto made = std::make_shared<const Group>(std::move(read));
  MutexLock lock(mutex_);
  last_ = made;
  return made;
}

absl::StatusOr<PackedOrder::Epoch> PackedOrder::MakeEpoch(int64_t number, int64_t first) const {
  Epoch epoch{.number = number, .first = first, .samples_before = {0}};
  for (int64_t group = 0; group < groups(); ++group) {
    ASSIGN_OR_RETURN(const Group read, ReadGroup(number, group));
    epoch.samples_before.push_back(epoch.samples_before.back() + SamplesOf(read.samples));
    epoch.tokens = std::accumulate(read.lengths.begin(), read.lengths.end(), epoch.tokens);
  }
  if (epoch.samples_before.back() > 0) return epoch;
  return absl::OutOfRangeError("wanted a document that can be trained on, found none");
}

absl::StatusOr<std::shared_ptr<const PackedOrder::Epoch>> PackedOrder::EpochAt(
    int64_t sample) const {
  MutexLock lock(mutex_);
  while (epochs_.empty() || epochs_.back()->end() <= sample) {
    const int64_t first = epochs_.empty() ? 0 : epochs_.back()->end();
    ASSIGN_OR_RETURN(Epoch made, MakeEpoch(int64_t(epochs_.size()), first));
    epochs_.push_back(std::make_shared<const Epoch>(std::move(made)));
  }
  const auto after =
      std::upper_bound(epochs_.begin(), epochs_.end(), sample,
                       [](int64_t at, const auto& epoch) { return at < epoch->first; });
  return *(after - 1);
}

absl::StatusOr<PackedOrder::EpochSize> PackedOrder::FirstEpoch() const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Epoch> epoch, EpochAt(0));
  return EpochSize{.samples = epoch->samples_before.back(), .tokens = epoch->tokens};
}

absl::StatusOr<std::vector<int64_t>> PackedOrder::DocumentsOf(int64_t sample) const {
  CHECK(sample >= 0) << sample;
  ASSIGN_OR_RETURN(const std::shared_ptr<const Epoch> epoch, EpochAt(sample));
  const int64_t index = sample - epoch->first;
  const auto after =
      std::upper_bound(epoch->samples_before.begin(), epoch->samples_before.end(), index);
  const int64_t group = after - epoch->samples_before.begin() - 1;
  ASSIGN_OR_RETURN(const auto read, GroupOf(epoch->number, group));
  const int64_t wanted = Unpermute(KeyOf(key_, "data/samples", epoch->number, group),
                                   SamplesOf(read->samples), index - *(after - 1));
  std::vector<int64_t> documents;
  for (size_t i = 0; i < read->documents.size(); ++i) {
    if (read->samples[i] == wanted) documents.push_back(read->documents[i]);
  }
  return documents;
}

}  // namespace trainyard
