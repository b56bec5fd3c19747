#include "train/data/token_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

class StreamDataset final : public TokenDataset {
 public:
  // Shared, because both splits read one open file.
  StreamDataset(StreamPart part, int64_t sequence, DocumentOptions documents)
      : TokenDataset(sequence, part.stream->vocab(), documents),
        stream_(std::move(part.stream)),
        first_(part.begin),
        num_samples_((part.tokens() - 1) / sequence) {}

  int64_t num_samples() const override { return num_samples_; }

  absl::Status ReadSample(int64_t index, const TokenSample& out) const override {
    const int64_t first = first_ + index * sequence();
    RETURN_IF_ERROR(stream_->Read(first, out.tokens));
    if (out.document_begins.empty()) return absl::OkStatus();
    return stream_->ReadDocumentBegins(first, out.document_begins);
  }

 private:
  const std::shared_ptr<const TokenStream> stream_;
  const int64_t first_;
  const int64_t num_samples_;
};

absl::Status CheckLength(const std::string& file, const char* what, int64_t tokens,
                         int64_t sequence) {
  if (tokens > sequence) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file,
                                                 ": wanted at least sequence + 1 = ", sequence + 1,
                                                 " tokens ", what, ", found ", tokens));
}

}  // namespace

absl::Status TokenStream::ReadDocumentStarts(int64_t first, std::span<int64_t> out) const {
  for (size_t i = 0; i < out.size(); ++i) out[i] = first + int64_t(i) == 0 ? 0 : num_tokens();
  return absl::OkStatus();
}

absl::Status TokenStream::ReadDocumentBegins(int64_t /*first*/, std::span<int32_t> out) const {
  std::fill(out.begin(), out.end(), 0);
  return absl::OkStatus();
}

absl::Status CheckLengths(const SplitStream& split, int64_t sequence) {
  RETURN_IF_ERROR(CheckLength(split.file, "to train on", split.split, sequence));
  if (split.held_out() == 0) return absl::OkStatus();
  return CheckLength(split.file, "held out for validation", split.held_out(), sequence);
}

absl::StatusOr<DataSplits> CutStream(const SplitStream& split, int64_t sequence,
                                     DocumentOptions documents) {
  RETURN_IF_ERROR(CheckLengths(split, sequence));
  const auto samples = [&](const StreamPart& part) {
    return std::make_unique<StreamDataset>(part, sequence, documents);
  };
  DataSplits splits;
  splits.train = samples(split.train());
  if (split.held_out() > 0) splits.validation = samples(split.validation());
  return splits;
}

}  // namespace trainyard
