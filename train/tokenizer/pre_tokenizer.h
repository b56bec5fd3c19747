// Cuts a text into words. Byte pairs never join across the border of two words.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/expression.h"

namespace trainyard {

// What becomes of a match and of the text between two matches. The names are those of
// tokenizer.json.
enum class SplitBehavior {
  kRemoved,             // Matches are left out.
  kIsolated,            // Each is a word.
  kMergedWithPrevious,  // A match belongs to the text before it.
  kMergedWithNext,      // A match belongs to the text after it.
  kContiguous,          // Matches in a row are one word.
};

struct SplitStep {
  std::shared_ptr<const Expression> expression;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // The texts between matches count as the matches.
};

struct PrefixSpaceStep {};  // Puts a space before each word that begins with none.

enum class PrependScheme { kFirst, kAlways, kNever };

// Replaces each space by a mark, and prepends the mark to the first word or to all.
struct MetaspaceStep {
  std::string mark = {};  // One character.
  PrependScheme prepend = PrependScheme::kAlways;
  std::shared_ptr<const Expression> cut =
      nullptr;  // The mark, before which words end. Null: they do not.
};

// Immutable and thread-safe.
class PreTokenizer {
 public:
  using Step = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

  // What one thread needs while it cuts. The words that Cut returns may lie in it.
  struct Memory {
    std::vector<absl::string_view> words, next;
    std::vector<std::string> texts;  // One for each step that changes the text.
    std::vector<std::pair<TextRange, bool>> parts;
  };

  template <typename T>
  void Add(T step) {
    steps_.emplace_back(std::in_place_type<T>, std::move(step));
  }

  // Sets memory.words to those of a text in UTF-8, which must not be empty. `begins`: the text is
  // the beginning of what the user wrote. RESOURCE_EXHAUSTED: an expression takes too many steps.
  absl::Status Cut(absl::string_view text, bool begins, Memory& memory) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace trainyard
