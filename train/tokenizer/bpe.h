// The model of a byte-pair tokenizer: a word becomes symbols, and symbols are joined (merges.h).

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "train/tokenizer/code_points.h"
#include "train/tokenizer/merges.h"
#include "train/tokenizer/vocabulary.h"

namespace trainyard {

// The names are those of "model" in tokenizer.json.
struct BpeOptions {
  bool byte_level = false;          // A symbol is a byte; else it is a character.
  bool byte_fallback = false;       // A character without a token becomes its bytes: <0xE2>, ...
  bool fuse_unk = false;            // Unknown characters in a row become one unk.
  bool ignore_merges = false;       // A word that is a token is not cut, whatever the merges say.
  std::optional<int32_t> unk = {};  // What an unknown symbol becomes. Without it, it is left out.
};

// Immutable and thread-safe.
class Bpe {
 public:
  // `words` has the tokens as texts have them: for byte_level, by the bytes themselves.
  Bpe(Vocabulary words, MergeTable merges, BpeOptions options);

  const Vocabulary& words() const { return words_; }
  const MergeTable& merges() const { return merges_; }
  const BpeOptions& options() const { return options_; }
  // Returns the id of a byte's token; -1 if there is none.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

  // Replaces `symbols` by those of a word in UTF-8.
  void Symbols(absl::string_view word, std::vector<int32_t>& symbols) const;

  // Returns where the first part of a word ends that can be encoded apart from the rest, without
  // any change of the ids: before the U+2581 of the next word if no token crosses this place.
  // Models such as Llama 2 cut no text into words, and a book that is one word is slow.
  size_t PartEnd(absl::string_view word) const;

 private:
  Vocabulary words_;
  const MergeTable merges_;
  const BpeOptions options_;
  std::array<int32_t, 256> byte_ids_;
  // Characters that stand before U+2581 in a token. Null: parts are not cut.
  std::unique_ptr<const CodePointSet> joins_next_;
};

// Encodes words for one thread. Remembers short words: most words of a text were there before. Not
// thread-safe.
class WordEncoder {
 public:
  // `bpe` must outlive the encoder.
  explicit WordEncoder(const Bpe& bpe);

  // Appends the ids of a word in UTF-8.
  void Encode(absl::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kKeyBytes = 23;
  static constexpr size_t kMostIds = 9;
  using Key = std::array<uint64_t, 3>;  // The word, zeros, and its length in the last byte.
  struct Slot {                         // A line of the processor's cache.
    Key key = {};
    int32_t count = 0;
    int32_t ids[kMostIds] = {};
  };
  void EncodePart(absl::string_view part, std::vector<int32_t>& ids);
  void Compute(absl::string_view part);  // Sets symbols_.

  const Bpe& bpe_;
  Merger merger_;
  std::vector<int32_t> symbols_;
  std::vector<Slot> slots_;
};

}  // namespace trainyard
