// What a model writes after a prompt, one token after another, and where the text ends.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "train/chat/prompts.h"
#include "train/generate/sampling.h"
#include "train/generate/stop_texts.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {

// Why a text ended.
enum class Ending : uint8_t {
  kLength,    // It has as many tokens as were asked for.
  kEndToken,  // The model drew the token that ends an answer in its format.
  kStopText,  // A text of ContinuationOptions::stop came.
};
constexpr const char* Name(Ending ending) {
  constexpr const char* kNames[] = {"length", "end_token", "stop_text"};
  return kNames[static_cast<int>(ending)];
}

struct ContinuationOptions {
  int64_t tokens = 200;  // The most that are written.
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // The text ends before the first of these.
  uint64_t seed = 1;
  uint64_t number = 0;  // Of the prompt: each has draws of its own.
  // Asked before each token. True: nobody wants the text any more. May be null.
  std::function<bool()> cancelled = nullptr;
};

class Continuation {
 public:
  // `write` gets each character when its last token was drawn, as UTF-8, with '?' for bytes that
  // belong to no character. The tokenizer must outlive this.
  Continuation(const Tokenizer& tokenizer, EncodedPrompt prompt, ContinuationOptions options,
               std::function<void(absl::string_view)> write);

  // The prompt and what follows.
  std::span<const int32_t> ids() const { return ids_; }
  // Without the token that ends the text.
  int64_t tokens() const { return tokens_; }
  bool ended() const { return ended_; }
  Ending ending() const { return ending_; }

  // Draws the next token of a text that has not ended. `logits` are of the model's vocabulary,
  // which may have more ids than the tokenizer. Errors: those of Tokenizer::Decode. CANCELLED:
  // ContinuationOptions::cancelled said so.
  absl::Status Add(std::span<const float> logits);

  // Ends a text of no tokens.
  absl::Status Begin() { return options_.tokens == 0 ? End(Ending::kLength) : absl::OkStatus(); }

 private:
  absl::Status End(Ending ending);

  const size_t vocab_;
  const ContinuationOptions options_;
  const std::function<void(absl::string_view)> write_;
  const std::optional<int32_t> end_;
  std::vector<int32_t> ids_;
  TextStream readable_;
  StopTexts stop_;
  int64_t tokens_ = 0;
  bool ended_ = false;
  Ending ending_ = Ending::kLength;
};

}  // namespace trainyard
