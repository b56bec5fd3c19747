// A text that grows: computes what may follow, and keeps the keys and values of its tokens, so that
// each further token costs the same however long the text is.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/program/executable.h"

namespace trainyard {

class GrowingText {
 public:
  // The most tokens that one replay reads, if there are several.
  static constexpr int64_t kAtOnce = 32;

  // `executable` was recorded with RecordOptions::cache for at most kAtOnce tokens, and is loaded.
  explicit GrowingText(Executable& executable);

  // Reads the tokens that the text has beyond those of the last call. If the text has more tokens
  // than the cache, the model sees the last ones of it: at least half as many as the cache holds,
  // beginning at a multiple of that. Returns where the logits of the last token are. The text must
  // not be empty.
  struct Place {
    std::string output;  // Of the program.
    int64_t row;
  };
  Place Read(std::span<const int32_t> text);

 private:
  void Forget();
  void ReadNew(std::span<const int32_t> tokens);

  Executable& executable_;
  const int64_t cache_;
  const int64_t at_once_;
  std::vector<int32_t> seen_;  // The tokens whose keys and values are kept.
};

}  // namespace trainyard
