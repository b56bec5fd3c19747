// Sets of code points: the character classes of a tokenizer's expressions.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/utf8.h"

namespace trainyard {

// A set under construction: sorted ranges, both ends included, that do not touch.
class CodePointRanges {
 public:
  using Range = std::pair<uint32_t, uint32_t>;

  CodePointRanges() = default;
  CodePointRanges(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) Add(range.first, range.second);
  }

  void Add(uint32_t first, uint32_t last);
  void Add(const CodePointRanges& other);
  CodePointRanges Complement() const;
  CodePointRanges Without(const CodePointRanges& other) const;

  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// A set that is asked for every character of a text. Immutable and thread-safe.
class CodePointSet {
 public:
  explicit CodePointSet(const CodePointRanges& ranges);

  bool Contains(uint32_t code_point) const {
    const auto& page = pages_[page_of_[code_point >> 8]];
    return (page[code_point >> 6 & 3] >> (code_point & 63) & 1) != 0;
  }
  bool ContainsAscii(uint8_t byte) const { return ascii_[byte]; }  // byte < 0x80.
  bool has_beyond_ascii() const { return has_beyond_ascii_; }

 private:
  using Page = std::array<uint64_t, 4>;  // 256 code points.

  std::array<bool, 128> ascii_ = {};
  bool has_beyond_ascii_ = false;
  std::vector<uint16_t> page_of_;  // By code point / 256. Equal pages are kept once.
  std::vector<Page> pages_;
};

// Returns the code points of a general category ("L", "Nd") or a script ("Han") by the name that
// \p{...} has. The general categories are those of Unicode 16, as Hugging Face's `tokenizers` 0.22
// has them. INVALID_ARGUMENT names what is not known.
absl::StatusOr<CodePointRanges> PropertyRanges(absl::string_view name);

// White space as \s has it: the property White_Space.
const CodePointRanges& WhiteSpace();
// What \w has in Rust's `regex`, which finds the words beside an added token.
const CodePointRanges& WordCharacters();

}  // namespace trainyard
