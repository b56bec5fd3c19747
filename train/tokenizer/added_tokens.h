// Tokens that are cut out of a text before anything else: <|endoftext|>, and runs of spaces that
// the vocabulary has whole.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "train/tokenizer/code_points.h"
#include "train/tokenizer/expression.h"

namespace trainyard {

// The fields are those of "added_tokens" in tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  bool single_word = false;  // Not within a word.
  bool lstrip = false;       // White space before the token belongs to it.
  bool rstrip = false;       // White space after the token belongs to it.
  bool normalized = false;   // The token is looked for in the normalized text.
  bool special = false;
};

// A part of a text: an added token, or a text between two.
struct AddedPiece {
  TextRange range;
  int32_t id = -1;  // Negative: no token.
};

// Finds the tokens of a list. Of those that begin at one place, the longest counts. Immutable and
// thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder();

  // Looks for `text` as well. The first token of a text counts. Empty texts are never found.
  void Add(absl::string_view text, const AddedToken& token);

  // Replaces `pieces` by those of the text, without empty ones.
  void Cut(absl::string_view text, std::vector<AddedPiece>& pieces) const;

 private:
  struct State {
    int32_t token = -1;  // Index of tokens_.
    std::vector<std::pair<char, uint32_t>> edges;
  };
  struct Traits {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  // The longest token at the front of the text: its bytes (0: none) and its index of tokens_.
  std::pair<size_t, int32_t> Longest(absl::string_view text) const;
  bool IsSingleWord(absl::string_view text, TextRange range) const;

  std::vector<State> states_;  // A trie. [0] is its root.
  bool begins_[256] = {};      // Whether a token begins with the byte.
  std::vector<Traits> tokens_;
  CodePointSet spaces_, words_;
};

}  // namespace trainyard
