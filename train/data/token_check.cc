#include "train/data/token_check.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace trainyard {
namespace {

constexpr int64_t kChunk = 1 << 20;  // Tokens that a thread reads at once.
constexpr absl::Duration kUntilRateIsKnown = absl::Seconds(2);

// The tokens [begin, end) of a stream.
struct Piece {
  const TokenStream* stream = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// Cuts the part of all streams, one after the other, into pieces.
std::vector<Piece> PiecesOf(const std::vector<std::shared_ptr<const TokenStream>>& streams,
                            const TokenCheck& check) {
  std::vector<Piece> pieces;
  for (const auto& stream : streams) {
    if (!MayExceedVocabulary(*stream)) continue;
    const auto at = [&](int64_t part) {
      return int64_t(static_cast<__int128>(stream->num_tokens()) * part / check.parts);
    };
    const int64_t end = at(check.part + 1);
    for (int64_t begin = at(check.part); begin < end; begin += kChunk) {
      pieces.push_back({stream.get(), begin, std::min(begin + kChunk, end)});
    }
  }
  return pieces;
}

// What the threads share.
class Progress {
 public:
  Progress(size_t pieces, const TokenCheck& check) : pieces_(pieces), check_(check) {}

  // Returns the number of the next piece; absent: all are taken, or there is no need to go on.
  std::optional<size_t> Next() {
    if (stopped_.load()) return std::nullopt;
    const size_t next = next_.fetch_add(1);
    if (next >= pieces_) return std::nullopt;
    const absl::Duration used = check_.clock.Monotonic() - start_;
    if (used > kUntilRateIsKnown && used * double(pieces_) > check_.limit * double(next)) {
      in_time_ = false;
      stopped_ = true;
      return std::nullopt;
    }
    return next;
  }
  // The error of the earliest piece counts. Pieces before it have been taken.
  void Fail(size_t piece, const absl::Status& status) {
    MutexLock lock(mutex_);
    if (piece < failed_) failed_ = piece, status_ = status;
    stopped_ = true;
  }
  absl::StatusOr<bool> Result() {
    MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    return in_time_.load();
  }

 private:
  const size_t pieces_;
  const TokenCheck& check_;
  const absl::Duration start_ = check_.clock.Monotonic();
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false, in_time_ = true;
  Mutex mutex_;
  size_t failed_ ABSL_GUARDED_BY(mutex_) = size_t(-1);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool MayExceedVocabulary(const TokenStream& stream) {
  switch (stream.dtype()) {
    case IndexDType::kUint8:
      return stream.vocab() <= UINT8_MAX;
    case IndexDType::kUint16:
      return stream.vocab() <= UINT16_MAX;
    default:
      return true;  // Negative ones, too.
  }
}

absl::StatusOr<bool> CheckTokens(const std::vector<std::shared_ptr<const TokenStream>>& streams,
                                 const TokenCheck& check) {
  const std::vector<Piece> pieces = PiecesOf(streams, check);
  Progress progress(pieces.size(), check);
  const auto read = [&] {
    std::vector<int32_t> tokens(static_cast<size_t>(kChunk));
    while (const std::optional<size_t> i = progress.Next()) {
      const Piece& piece = pieces[*i];
      const std::span<int32_t> out(tokens.data(), size_t(piece.end - piece.begin));
      if (const absl::Status status = piece.stream->Read(piece.begin, out); !status.ok()) {
        progress.Fail(*i, status);
      }
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min(size_t(std::max(check.threads, 1)), pieces.size());
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(read);
  read();
  for (std::thread& thread : threads) thread.join();
  return progress.Result();
}

}  // namespace trainyard
