#include "train/data/shuffled_documents.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/permutation.h"

namespace trainyard {

ShuffledDocuments::ShuffledDocuments(StreamPart part, int64_t sequence, uint64_t key)
    : part_(std::move(part)),
      sequence_(sequence),
      key_(key),
      documents_(part_.stream->num_documents()) {
  CHECK(part_.tokens() > 0 && sequence > 0) << part_.file << ": " << part_.tokens();
}

absl::Status ShuffledDocuments::Changed() const {
  return absl::DataLossError(absl::StrCat(part_.file, ": changed after it was opened"));
}

int64_t ShuffledDocuments::RunIndex(int64_t sample) const {
  const int64_t tokens = part_.tokens();
  // The first sample that begins in an epoch.
  const auto first_of = [&](int64_t epoch) { return (epoch * tokens + sequence_ - 1) / sequence_; };
  const int64_t epoch = sample * sequence_ / tokens, first = first_of(epoch);
  const uint64_t key = RandomBits(key_, HashName("data/samples"), uint64_t(epoch));
  return first + Permute(key, first_of(epoch + 1) - first, sample - first);
}

absl::StatusOr<std::shared_ptr<const ShuffledDocuments::Epoch>> ShuffledDocuments::EpochOf(
    int64_t number) const {
  const MutexLock lock(mutex_);
  std::shared_ptr<const Epoch>& kept = epochs_[size_t(number % 3)];
  if (kept == nullptr || kept->number != number) {
    kept.reset();  // Two orders would be in memory otherwise.
    ASSIGN_OR_RETURN(kept, MakeEpoch(number));
  }
  return kept;
}

absl::StatusOr<std::shared_ptr<const ShuffledDocuments::Epoch>> ShuffledDocuments::MakeEpoch(
    int64_t number) const {
  auto epoch = std::make_shared<Epoch>();
  epoch->number = number;
  epoch->key = RandomBits(key_, HashName("data/documents"), uint64_t(number));
  std::vector<int64_t>& before = epoch->tokens_before;
  before.resize(size_t((documents_ + kPlaces - 1) / kPlaces) + 1);
  epoch->taken.resize(before.size() - 1);
  ASSIGN_OR_RETURN(int64_t first, FirstDocument());
  // In the order of the file, because reading the index in another order would take far longer.
  constexpr int64_t kRead = 8192;
  std::vector<int64_t> starts = {0};
  for (; first < documents_ && starts.back() < part_.end; first += kRead) {
    const int64_t count = std::min(kRead, documents_ - first);
    starts.resize(size_t(count) + 1);
    RETURN_IF_ERROR(part_.stream->ReadDocumentStarts(first, starts));
    for (int64_t& start : starts) start = std::clamp(start, part_.begin, part_.end);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t tokens = starts[size_t(i) + 1] - starts[size_t(i)];
      if (tokens < 0) return Changed();
      if (tokens == 0) continue;
      const int64_t place = Unpermute(epoch->key, documents_, first + i);
      before[size_t(place / kPlaces) + 1] += tokens;
      epoch->taken[size_t(place / kPlaces)] |= uint64_t{1} << (place % kPlaces);
    }
  }
  for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
  if (before.back() != part_.tokens()) return Changed();
  return epoch;
}

absl::StatusOr<int64_t> ShuffledDocuments::FirstDocument() const {
  int64_t low = 0, high = documents_ - 1;
  while (low < high) {
    const int64_t middle = std::midpoint(low, high);
    int64_t end = 0;
    RETURN_IF_ERROR(part_.stream->ReadDocumentStarts(middle + 1, std::span(&end, 1)));
    if (end > part_.begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

absl::StatusOr<ShuffledDocuments::Piece> ShuffledDocuments::DocumentAt(const Epoch& epoch,
                                                                       int64_t place) const {
  int64_t bounds[2];
  RETURN_IF_ERROR(part_.stream->ReadDocumentStarts(Permute(epoch.key, documents_, place), bounds));
  for (int64_t& bound : bounds) bound = std::clamp(bound, part_.begin, part_.end);
  return Piece{.first = bounds[0], .count = std::max<int64_t>(0, bounds[1] - bounds[0])};
}

absl::StatusOr<int64_t> ShuffledDocuments::PiecesOfEpoch(const Epoch& epoch, int64_t offset,
                                                         int64_t count,
                                                         const TakePiece& take) const {
  const std::vector<int64_t>& before = epoch.tokens_before;
  const auto after = std::upper_bound(before.begin(), before.end(), offset);
  int64_t skipped = offset - *(after - 1), given = 0;
  size_t at = size_t(after - before.begin()) - 1;
  for (; at < epoch.taken.size() && given < count; ++at) {
    for (uint64_t bits = epoch.taken[at]; bits != 0 && given < count; bits &= bits - 1) {
      const int64_t place = int64_t(at) * kPlaces + std::countr_zero(bits);
      ASSIGN_OR_RETURN(Piece piece, DocumentAt(epoch, place));
      if (piece.count <= skipped) {
        skipped -= piece.count;
        continue;
      }
      piece.first += skipped;
      piece.count = std::min(piece.count - skipped, count - given);
      skipped = 0;
      given += piece.count;
      RETURN_IF_ERROR(take(piece));
    }
  }
  return given;
}

absl::Status ShuffledDocuments::ForEachPiece(int64_t first, int64_t count,
                                             const TakePiece& take) const {
  while (count > 0) {
    const int64_t number = first / part_.tokens(), offset = first % part_.tokens();
    const int64_t wanted = std::min(count, part_.tokens() - offset);
    ASSIGN_OR_RETURN(const std::shared_ptr<const Epoch> epoch, EpochOf(number));
    ASSIGN_OR_RETURN(const int64_t taken, PiecesOfEpoch(*epoch, offset, wanted, take));
    if (taken != wanted) return Changed();
    first += wanted;
    count -= wanted;
  }
  return absl::OkStatus();
}

absl::Status ShuffledDocuments::Read(int64_t sample, const TokenSample& out) const {
  CHECK(int64_t(out.tokens.size()) == sequence_ + 1) << out.tokens.size();
  int64_t at = 0;
  return ForEachPiece(RunIndex(sample) * sequence_, sequence_ + 1, [&](const Piece& piece) {
    if (!out.document_begins.empty()) {
      std::fill_n(out.document_begins.begin() + at, piece.count, int32_t(at));
    }
    const std::span<int32_t> to = out.tokens.subspan(size_t(at), size_t(piece.count));
    at += piece.count;
    return part_.stream->Read(piece.first, to);
  });
}

}  // namespace trainyard
