// Makes a text of the texts of tokens.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/normalizer.h"

namespace trainyard {

struct BytesStep {};         // A token is characters of the byte alphabet (byte_alphabet.h).
struct ByteFallbackStep {};  // <0xE2> and its kind become bytes.
struct FuseStep {};          // All tokens become one.
struct StripStep {           // Takes some characters from the ends of each token.
  std::string character;
  size_t start = 0, stop = 0;  // At most so many.
};
struct UnmarkStep {  // The mark of MetaspaceStep becomes a space.
  std::string mark;
  bool drops_first = true;  // At the front of the first token it is dropped instead.
};

// Immutable and thread-safe.
class TokenDecoder {
 public:
  using Step =
      std::variant<BytesStep, ByteFallbackStep, FuseStep, StripStep, UnmarkStep, ReplaceStep>;

  template <typename T>
  void Add(T step) {
    steps_.emplace_back(std::in_place_type<T>, std::move(step));
  }

  // Joins the tokens, after each step has changed them in turn. RESOURCE_EXHAUSTED as of
  // Normalizer::Apply.
  absl::StatusOr<std::string> Decode(std::vector<std::string> tokens) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace trainyard
