// Texts as token ids, and back. Start at OpenTokenizer (open_tokenizer.h).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Encodes texts for one thread, whose words it remembers. Not thread-safe.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of a text, without those that Tokenizer::prefix and suffix name. Malformed
  // UTF-8 counts as U+FFFD (ReplaceMalformed). RESOURCE_EXHAUSTED: an expression of the tokenizer
  // takes too many steps on this text.
  virtual absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) = 0;
};

// What becomes of special tokens, such as <|endoftext|>, in a decoded text.
enum class Specials { kKeep, kSkip };

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokenizer must outlive the encoder.
  virtual std::unique_ptr<Encoder> NewEncoder() const = 0;

  // Returns the bytes that the tokens stand for. They are no valid UTF-8 if the ids end within a
  // character. OUT_OF_RANGE: there is no token of an id.
  virtual absl::StatusOr<std::string> Decode(std::span<const int32_t> ids,
                                             Specials specials) const = 0;

  virtual int64_t vocab() const = 0;  // One more than the largest id.
  // The id of a token by its text, such as "<|endoftext|>".
  virtual std::optional<int32_t> Find(absl::string_view token) const = 0;

  // The ids that the tokenizer's own template puts before and after a text, such as <s>.
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 protected:
  std::vector<int32_t> prefix_, suffix_;
};

}  // namespace trainyard
