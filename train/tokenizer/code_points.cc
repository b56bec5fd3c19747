#include "train/tokenizer/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "train/tokenizer/unicode_additions.h"

namespace trainyard {
namespace {

constexpr int kCategories = UTF8PROC_CATEGORY_CO + 1;
using CategoryRanges = std::array<CodePointRanges, kCategories>;

// Asking the library for each code point takes milliseconds, so it is done once.
const CategoryRanges& Categories() {
  static const CategoryRanges& categories = *[] {
    std::vector<uint8_t> all;
    for (uint32_t c = 0; c < kCodePoints; ++c) {
      all.push_back(uint8_t(utf8proc_category(utf8proc_int32_t(c))));
    }
    for (const UnicodeAddition& addition : kUnicodeAdditions) {
      std::fill(all.begin() + addition.first, all.begin() + addition.last + 1,
                uint8_t(addition.category));
    }
    auto* const made = new CategoryRanges();
    for (auto first = all.begin(); first != all.end();) {
      const auto last = std::find_if(first, all.end(), [first](uint8_t c) { return c != *first; });
      (*made)[*first].Add(uint32_t(first - all.begin()), uint32_t(last - all.begin()) - 1);
      first = last;
    }
    return made;
  }();
  return categories;
}

// The script Han, Unicode 16, Scripts.txt.
const CodePointRanges& Han() {
  static const CodePointRanges& han = *new CodePointRanges{
      {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
      {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
      {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
      {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
      {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
      {0x30000, 0x3134A}, {0x31350, 0x323AF}};
  return han;
}

}  // namespace

void CodePointRanges::Add(uint32_t first, uint32_t last) {
  if (first > last) return;
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    const bool apart = range.second + 1 < first || last + 1 < range.first;
    if (apart) {
      merged.push_back(range);
    } else {
      first = std::min(first, range.first);
      last = std::max(last, range.second);
    }
  }
  merged.insert(std::lower_bound(merged.begin(), merged.end(), Range(first, last)), {first, last});
  ranges_ = std::move(merged);
}

void CodePointRanges::Add(const CodePointRanges& other) {
  std::vector<Range> all;
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             std::back_inserter(all));
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointRanges CodePointRanges::Complement() const {
  CodePointRanges complement;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) complement.ranges_.emplace_back(next, range.first - 1);
    next = range.second + 1;
  }
  if (next < kCodePoints) complement.ranges_.emplace_back(next, kCodePoints - 1);
  return complement;
}

CodePointRanges CodePointRanges::Without(const CodePointRanges& other) const {
  CodePointRanges rest = Complement();
  rest.Add(other);
  return rest.Complement();
}

CodePointSet::CodePointSet(const CodePointRanges& ranges) : page_of_(kCodePoints >> 8) {
  std::map<Page, uint16_t> known;
  auto range = ranges.ranges().begin();
  const auto end = ranges.ranges().end();
  for (uint32_t number = 0; number < page_of_.size(); ++number) {
    const uint32_t first = number << 8, last = first + 255;
    Page page = {};
    while (range != end && range->first <= last) {
      const uint32_t from = std::max(first, range->first), to = std::min(last, range->second);
      for (uint32_t c = from; c <= to; ++c) page[c >> 6 & 3] |= uint64_t{1} << (c & 63);
      if (range->second > last) break;
      ++range;
    }
    const auto [place, is_new] = known.emplace(page, uint16_t(pages_.size()));
    if (is_new) pages_.push_back(page);
    page_of_[number] = place->second;
  }
  for (uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = Contains(c);
  has_beyond_ascii_ = !ranges.ranges().empty() && ranges.ranges().back().second >= 0x80;
}

absl::StatusOr<CodePointRanges> PropertyRanges(absl::string_view name) {
  if (name == "Han") return Han();
  CodePointRanges ranges;
  if (!name.empty() && name.size() <= 2) {
    for (int category = 0; category < kCategories; ++category) {
      const uint32_t one = Categories()[size_t(category)].ranges()[0].first;
      const absl::string_view its = utf8proc_category_string(utf8proc_int32_t(one));
      if (absl::StartsWith(its, name)) ranges.Add(Categories()[size_t(category)]);
    }
  }
  if (ranges.ranges().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted a general category of Unicode in one or two letters, such as L or Nd, or the "
        "script Han; found the property ",
        name));
  }
  return ranges;
}

const CodePointRanges& WhiteSpace() {
  static const CodePointRanges& spaces = *new CodePointRanges{
      {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  return spaces;
}

const CodePointRanges& WordCharacters() {
  static const CodePointRanges& words = *[] {
    // Alphabetic is letters, Nl, marks, and the letters in circles and squares that are symbols.
    // Two characters join letters.
    auto* const made = new CodePointRanges{{0x200C, 0x200D},
                                           {0x24B6, 0x24E9},
                                           {0x1F130, 0x1F149},
                                           {0x1F150, 0x1F169},
                                           {0x1F170, 0x1F189}};
    for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) {
      made->Add(PropertyRanges(category).value());
    }
    return made;
  }();
  return words;
}

}  // namespace trainyard
