#include "train/data/token_stream.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

class StreamDataset final : public TokenDataset {
 public:
  // Shared, because both splits read one open file.
  StreamDataset(std::shared_ptr<const TokenStream> stream, int64_t first, int64_t tokens,
                int64_t sequence)
      : TokenDataset(sequence, stream->vocab(), stream->has_documents()),
        stream_(std::move(stream)),
        first_(first),
        num_samples_((tokens - 1) / sequence) {}

  int64_t num_samples() const override { return num_samples_; }

  absl::Status ReadTokens(int64_t index, std::span<int32_t> out) const override {
    return stream_->Read(first_ + index * sequence(), out);
  }
  absl::Status ReadDocumentBegins(int64_t index, std::span<int32_t> out) const override {
    return stream_->ReadDocumentBegins(first_ + index * sequence(), out);
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

absl::StatusOr<DataSplits> CutStream(std::unique_ptr<const TokenStream> stream, int64_t split,
                                     int64_t sequence, const std::string& file) {
  const std::shared_ptr<const TokenStream> shared = std::move(stream);
  const int64_t held_out = shared->num_tokens() - split;
  DataSplits splits;
  RETURN_IF_ERROR(CheckLength(file, "to train on", split, sequence));
  splits.train = std::make_unique<StreamDataset>(shared, 0, split, sequence);
  if (held_out > 0) {
    RETURN_IF_ERROR(CheckLength(file, "held out for validation", held_out, sequence));
    splits.validation = std::make_unique<StreamDataset>(shared, split, held_out, sequence);
  }
  return splits;
}

}  // namespace trainyard
