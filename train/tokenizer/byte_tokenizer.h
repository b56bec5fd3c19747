// Bytes as tokens: the vocabulary of 256 that needs no file.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Every byte is its own id, also one of malformed UTF-8. There are no special tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  std::unique_ptr<Encoder> NewEncoder() const override;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids,
                                     Specials specials) const override;
  int64_t vocab() const override { return 256; }
  std::optional<int32_t> Find(absl::string_view token) const override;
};

}  // namespace trainyard
