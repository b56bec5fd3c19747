#include "train/generate/continuation.h"

#include <utility>

#include "common/rng.h"
#include "common/status_macros.h"

namespace trainyard {

Continuation::Continuation(const Tokenizer& tokenizer, EncodedPrompt prompt,
                           ContinuationOptions options,
                           std::function<void(absl::string_view)> write)
    : vocab_(size_t(tokenizer.vocab())),
      options_(std::move(options)),
      write_(std::move(write)),
      end_(prompt.end),
      ids_(std::move(prompt.ids)),
      readable_(tokenizer, ids_),
      stop_(options_.stop) {}

absl::Status Continuation::Add(std::span<const float> logits) {
  if (options_.cancelled && options_.cancelled()) {
    return absl::CancelledError("nobody wants the text any more");
  }
  const uint64_t place = (options_.number << 32) + uint64_t(tokens_);
  const double u = Uniform(options_.seed, HashName("generate"), place);
  const auto next = int32_t(SampleToken(logits.first(vocab_), options_.sampling, u));
  if (next == end_) return End(Ending::kEndToken);
  ids_.push_back(next);
  ++tokens_;
  ASSIGN_OR_RETURN(const std::string more, readable_.Add(next));
  write_(stop_.Add(more));
  return stop_.stopped() || tokens_ == options_.tokens ? End(Ending::kLength) : absl::OkStatus();
}

absl::Status Continuation::End(Ending ending) {
  ASSIGN_OR_RETURN(const std::string rest, readable_.End());
  write_(stop_.Add(rest));
  write_(stop_.End());
  ended_ = true;
  ending_ = stop_.stopped() ? Ending::kStopText : ending;
  return absl::OkStatus();
}

}  // namespace trainyard
