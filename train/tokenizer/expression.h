// The regular expressions by which pre-tokenizers cut a text into words.
//
// Hugging Face's `tokenizers` use Oniguruma. An expression here means exactly what it means there,
// or Compile refuses it and names the part that is not known. docs/adr/0022 says why this is not a
// library: the tables of Unicode differ, and so does \s.
//
//   known      a  .  \n \r \t \f \xHH \x{H} \uHHHH  \s \S \d \D  \p{L} \P{L}  [a-z[..]&&[^..]]
//              | (..) (?:..) (?i:..) (?=..) (?!..)  * + ? {n} {n,} {n,m}, lazy with ?, and
//              possessive with + after * + ?
//   refused    everything else: ^ $ \b \w (?<=..) (?>..) \1, a group that may repeat, and an
//              expression that matches the empty text

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/code_points.h"

namespace trainyard {

struct TextRange {
  size_t begin = 0, end = 0;  // In bytes.
  bool operator==(const TextRange&) const = default;
};

// Immutable and thread-safe.
class Expression {
 public:
  // INVALID_ARGUMENT names the place and the part that is wrong or not known.
  static absl::StatusOr<Expression> Compile(absl::string_view pattern);
  // The expression that matches this text alone, which must not be empty.
  static absl::StatusOr<Expression> Literally(absl::string_view text);

  // Finds the matches of valid UTF-8 from left to right. Of the alternatives at one place, the
  // first that leads to a match counts, as in Perl.
  class Finder {
   public:
    // Both must outlive the finder.
    Finder(const Expression& expression, absl::string_view text);

    // Sets `match` to the next match. Returns false after the last one, or if the search was given
    // up.
    bool Next(TextRange& match);
    // Whether the search took too many steps: an expression such as \s*\s*\s*x takes n^3 of them.
    bool gave_up() const { return gave_up_; }

   private:
    const char* Run(uint32_t index, const char* at);

    const Expression& expression_;
    const absl::string_view text_;
    size_t at_ = 0;
    int64_t steps_left_;
    bool gave_up_ = false;
  };

 private:
  friend class ExpressionCompiler;
  static constexpr size_t kMostOptions = 64;  // At the top: bits of an element of viable_.

  enum class Repeat : uint8_t { kGreedy, kLazy, kPossessive };
  enum class Kind : uint8_t { kAccept, kSet, kOptions, kLook };
  struct Node {
    Kind kind = Kind::kAccept;
    Repeat repeat = Repeat::kGreedy;
    bool negative = false;               // kLook: what is looked for must not be there.
    uint32_t set = 0;                    // kSet: index of sets_.
    uint32_t min = 1, max = 1;           // kSet: how many characters.
    uint32_t inner = 0;                  // kLook: what is looked for.
    uint32_t next = 0;                   // What follows; not of kOptions, whose options go on.
    std::vector<uint32_t> options = {};  // kOptions: in order.
  };

  Expression() = default;

  std::vector<Node> nodes_;  // [0] is kAccept.
  std::vector<CodePointSet> sets_;
  std::vector<uint32_t> roots_;            // The alternatives at the top.
  std::array<uint64_t, 256> viable_ = {};  // Bit i: a match of roots_[i] may begin with the byte.
};

}  // namespace trainyard
