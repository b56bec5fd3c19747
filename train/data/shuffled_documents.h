// Samples of a corpus whose documents come in a new random order in each epoch.
//
// The epochs of the corpus follow one another as one endless run of tokens. Sample m of the run has
// its tokens [m * sequence, (m + 1) * sequence]: neighbours share one token, and a sample may reach
// from one epoch into the next. So each epoch uses every token exactly once. The samples that begin
// in one epoch are read in a random order. Both orders are permutations with a key
// (permutation.h), so nothing is stored on disk, and any sample can be read at once.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "train/data/token_stream.h"

namespace trainyard {

// Keeps 16 bytes per 64 documents of the corpus for each of up to three epochs. To begin an epoch,
// reads the part's index once: about 0.1 s for a million documents. What a sample costs does not
// depend on the part's share of the corpus. Thread-safe.
class ShuffledDocuments {
 public:
  // Samples have `sequence` tokens and one more. Two corpora with different keys have independent
  // orders.
  ShuffledDocuments(StreamPart part, int64_t sequence, uint64_t key);

  // Reads sample number `sample` of all that are ever read, from 0. Errors: those of TokenStream,
  // and DATA_LOSS if the file has changed.
  absl::Status Read(int64_t sample, const TokenSample& out) const;

 private:
  static constexpr int64_t kPlaces = 64;  // Between which a running sum of tokens is kept.
  // The order of the documents in one epoch. All documents of the corpus have a place.
  struct Epoch {
    int64_t number = -1;
    uint64_t key = 0;
    std::vector<int64_t> tokens_before;  // The places 0, kPlaces, 2 kPlaces, ...; last, the end.
    // For each kPlaces places a bit each, which is set if the document has tokens in the part. Of a
    // small part, few places have any.
    std::vector<uint64_t> taken;
  };
  // Some tokens of one document: [first, first + count) of the stream.
  struct Piece {
    int64_t first = 0;
    int64_t count = 0;
  };
  using TakePiece = std::function<absl::Status(const Piece&)>;

  // Returns the place of a sample in the endless run.
  int64_t RunIndex(int64_t sample) const;
  absl::StatusOr<std::shared_ptr<const Epoch>> EpochOf(int64_t number) const;
  absl::StatusOr<std::shared_ptr<const Epoch>> MakeEpoch(int64_t number) const;
  // The first document that ends behind the part's beginning.
  absl::StatusOr<int64_t> FirstDocument() const;
  // Calls `take` with the pieces that make up `count` tokens of the run from `first` on.
  absl::Status ForEachPiece(int64_t first, int64_t count, const TakePiece& take) const;
  // The same within one epoch. Returns how many tokens there were.
  absl::StatusOr<int64_t> PiecesOfEpoch(const Epoch& epoch, int64_t offset, int64_t count,
                                        const TakePiece& take) const;
  // The document at a place, clipped to the part.
  absl::StatusOr<Piece> DocumentAt(const Epoch& epoch, int64_t place) const;
  absl::Status Changed() const;

  const StreamPart part_;
  const int64_t sequence_;
  const uint64_t key_;
  const int64_t documents_;  // Of the stream. Those outside of the part have no tokens here.

  mutable Mutex mutex_;
  // An epoch is at its number modulo 3: of the samples of one epoch, the last reach into the next.
  mutable std::array<std::shared_ptr<const Epoch>, 3> epochs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
