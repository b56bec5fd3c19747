// Writes the text of ids that come one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Not thread-safe.
class TextStream {
 public:
  // The text follows that of the ids `before`. The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before);

  // Returns the text that is now complete, in UTF-8; often none, because a character may be several
  // tokens. Errors are those of Tokenizer::Decode.
  absl::StatusOr<std::string> Add(int32_t id);
  // Returns the rest, with '?' for bytes that belong to no character.
  absl::StatusOr<std::string> End();

 private:
  // A tokenizer may treat the first token otherwise than the others, so some ids that were written
  // are decoded again with those that follow them.
  absl::StatusOr<std::string> New() const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // Those that were written last, and those that were not.
  size_t written_;            // How many of them were written.
  Utf8Stream readable_;
};

}  // namespace trainyard
