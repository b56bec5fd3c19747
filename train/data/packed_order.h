// Which documents stand together in a sample, so that each is whole and little is padding.
//
// In each epoch, the documents come in a new random order (permutation.h), in groups of
// kPackedGroup. A group is packed by itself: each document goes into the first sample of the group
// that has room for it, or else into a new one. The samples of a group then come in a random order.
// So any sample can be found at once from its number, without any state: to find the group, the
// number of samples is kept for each, in 8 bytes.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace trainyard {

inline constexpr int64_t kPackedGroup = 4096;

// Packs documents of these lengths into samples of `capacity`, by first fit. Returns for each
// document the number of its sample; samples are numbered as they are begun. CHECKs that each
// length is from 1 to `capacity`. Takes O(n log n).
std::vector<int32_t> FirstFit(std::span<const int32_t> lengths, int32_t capacity);

// Thread-safe.
class PackedOrder {
 public:
  // Reads the lengths of documents, by their numbers.
  using ReadLengths =
      std::function<absl::Status(std::span<const int64_t> documents, std::span<int32_t> lengths)>;

  // `documents` > 0. A length of 0 leaves the document out. Two orders with different keys are
  // independent.
  PackedOrder(int64_t documents, int32_t capacity, uint64_t key, ReadLengths read_lengths);

  // Returns the documents of a sample, in their order: sample number `sample` of all that are ever
  // read, from 0. The samples of an epoch follow those of the epoch before. To begin an epoch, the
  // lengths of all documents are read once. OUT_OF_RANGE: no document has a length. Errors:
  // those of `read_lengths`.
  absl::StatusOr<std::vector<int64_t>> DocumentsOf(int64_t sample) const;

  // How many samples the first epoch has, and how many tokens the documents in them.
  struct EpochSize {
    int64_t samples = 0;
    int64_t tokens = 0;
  };
  absl::StatusOr<EpochSize> FirstEpoch() const;

 private:
  struct Epoch {
    int64_t number = 0;
    int64_t first = 0;                    // Samples of all epochs before.
    std::vector<int64_t> samples_before;  // For each group; last, the number of the epoch's.
    int64_t tokens = 0;

    int64_t end() const { return first + samples_before.back(); }
  };
  struct Group {
    int64_t epoch = 0, group = 0;
    std::vector<int64_t> documents;
    std::vector<int32_t> lengths;
    std::vector<int32_t> samples;  // FirstFit of the lengths.
  };

  int64_t groups() const { return (documents_ + kPackedGroup - 1) / kPackedGroup; }
  absl::StatusOr<Group> ReadGroup(int64_t epoch, int64_t group) const;
  absl::StatusOr<std::shared_ptr<const Group>> GroupOf(int64_t epoch, int64_t group) const;
  absl::StatusOr<Epoch> MakeEpoch(int64_t number, int64_t first) const;
  // The epoch that has the sample.
  absl::StatusOr<std::shared_ptr<const Epoch>> EpochAt(int64_t sample) const;

  const int64_t documents_;
  const int32_t capacity_;
  const uint64_t key_;
  const ReadLengths read_lengths_;

  mutable Mutex mutex_;
  // Those that were asked for, from the first one on.
  mutable std::vector<std::shared_ptr<const Epoch>> epochs_ ABSL_GUARDED_BY(mutex_);
  // The group that was read last. The next sample is of the same, most often.
  mutable std::shared_ptr<const Group> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
