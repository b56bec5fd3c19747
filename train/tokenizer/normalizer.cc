#include "train/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "train/tokenizer/unicode_inert.h"

namespace trainyard {
namespace {

constexpr size_t kMostParts = 32;  // Of a character: U+FDFA has 18.
constexpr uint32_t kFirstHangul = 0xAC00, kLastHangul = 0xD7A3;
constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

utf8proc_option_t FormOptions(NormalForm form) {
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return utf8proc_option_t(UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                           (compatible ? UTF8PROC_COMPAT : 0));
}

absl::StatusOr<std::string> InForm(absl::string_view text, NormalForm form) {
  if (text.empty()) return std::string();
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   utf8proc_ssize_t(text.size()), &made, FormOptions(form));
  if (bytes < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a text of ", text.size(), " bytes has no normal form: ", utf8proc_errmsg(bytes)));
  }
  std::string formed(reinterpret_cast<const char*>(made), size_t(bytes));
  std::free(made);
  return formed;
}

const CodePointSet& InertCharacters() {
  static const CodePointSet& inert = *[] {
    CodePointRanges ranges;
    for (const auto& [first, last] : kInertInForms) ranges.Add(first, last);
    return new CodePointSet(ranges);
  }();
  return inert;
}

// Characters that are in the form, do not change places with a neighbour, and do not join the one
// before them.
CodePointRanges StableCharacters(NormalForm form) {
  std::vector<bool> changes(kCodePoints);
  for (uint32_t c = kFirstSurrogate; c <= kLastSurrogate; ++c) changes[c] = true;
  // The second and third parts of a syllable of Hangul join the first.
  for (uint32_t c = 0x1161; c <= 0x1175; ++c) changes[c] = true;
  for (uint32_t c = 0x11A8; c <= 0x11C2; ++c) changes[c] = true;
  std::array<utf8proc_int32_t, kMostParts> parts;
  for (uint32_t c = 0x80; c < kCodePoints; ++c) {
    if (changes[c] || InertCharacters().Contains(c)) continue;
    if (utf8proc_get_property(utf8proc_int32_t(c))->combining_class != 0) changes[c] = true;
    int last_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(utf8proc_int32_t(c), parts.data(), utf8proc_ssize_t(parts.size()),
                                FormOptions(form), &last_class);
    if (count == 1 && parts[0] == utf8proc_int32_t(c)) continue;
    std::string character;
    AppendUtf8(character, c);
    const auto formed = InForm(character, form);
    if (!formed.ok() || *formed != character) changes[c] = true;
    if (c >= kFirstHangul && c <= kLastHangul) continue;
    // What a character ends with joins what stands before it.
    for (utf8proc_ssize_t i = 1; i < count; ++i) changes[size_t(parts[size_t(i)])] = true;
  }
  for (const auto& [first, last] : kInertInForms) {
    for (uint32_t c = first; c <= last; ++c) changes[c] = false;
  }
  CodePointRanges stable;
  for (uint32_t first = 0; first < kCodePoints;) {
    const auto end = std::find(changes.begin() + first, changes.end(), true);
    const uint32_t next = uint32_t(end - changes.begin());
    if (next > first) stable.Add(first, next - 1);
    first = next + 1;
  }
  return stable;
}

// Making a set takes tens of milliseconds.
const CodePointSet& StableIn(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: {
      static const CodePointSet& nfc = *new CodePointSet(StableCharacters(form));
      return nfc;
    }
    case NormalForm::kNfd: {
      static const CodePointSet& nfd = *new CodePointSet(StableCharacters(form));
      return nfd;
    }
    case NormalForm::kNfkc: {
      static const CodePointSet& nfkc = *new CodePointSet(StableCharacters(form));
      return nfkc;
    }
    case NormalForm::kNfkd:
      break;
  }
  static const CodePointSet& nfkd = *new CodePointSet(StableCharacters(form));
  return nfkd;
}

}  // namespace

FormStep::FormStep(NormalForm form) : form_(form), stable_(&StableIn(form)) {}

bool FormStep::LeavesAlone(absl::string_view text) const {
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    if (uint8_t(text[at]) >= 0x80 && !stable_->Contains(DecodeUtf8(text.data() + at))) return false;
  }
  return true;
}

absl::StatusOr<std::string> FormStep::Apply(absl::string_view text) const {
  std::string made;
  size_t begin = 0;  // Of the part after the last inert character.
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + Utf8Bytes(text[at]);
    if (uint8_t(text[at]) < 0x80 || !InertCharacters().Contains(DecodeUtf8(text.data() + at))) {
      continue;
    }
    ASSIGN_OR_RETURN(const std::string part, InForm(text.substr(begin, at - begin), form_));
    absl::StrAppend(&made, part, text.substr(at, end - at));
    begin = end;
  }
  ASSIGN_OR_RETURN(const std::string rest, InForm(text.substr(begin), form_));
  return begin == 0 ? rest : absl::StrCat(made, rest);
}

size_t MostBytesMadeOf(size_t bytes) {
  // NFKD makes 11 bytes of one, and a mark for a space has 3.
  return std::min<size_t>(16 * bytes + 1024, std::numeric_limits<int32_t>::max());
}

absl::Status TooLong(size_t most_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("the tokenizer makes more than ", most_bytes,
                                                   " bytes of a text that is much shorter"));
}

absl::StatusOr<std::string> ReplaceAll(absl::string_view text, const ReplaceStep& step,
                                       size_t most_bytes) {
  std::string replaced;
  replaced.reserve(std::min(text.size() + text.size() / 2, most_bytes));
  Expression::Finder finder(*step.what, text);
  size_t done = 0;
  for (TextRange match; finder.Next(match); done = match.end) {
    replaced.append(text.data() + done, match.begin - done);
    replaced += step.with;
    if (replaced.size() > most_bytes) return TooLong(most_bytes);
  }
  if (finder.gave_up()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an expression takes too many steps on a text of ", text.size(), " bytes"));
  }
  replaced.append(text.data() + done, text.size() - done);
  if (replaced.size() > most_bytes) return TooLong(most_bytes);
  return replaced;
}

absl::StatusOr<absl::string_view> Normalizer::Apply(absl::string_view text,
                                                    std::string& memory) const {
  const size_t most_bytes = MostBytesMadeOf(text.size());
  for (const Step& step : steps_) {
    if (const auto* const form = std::get_if<FormStep>(&step)) {
      if (form->LeavesAlone(text)) continue;
      ASSIGN_OR_RETURN(memory, form->Apply(text));
    } else if (const auto* const prepend = std::get_if<PrependStep>(&step)) {
      if (text.empty()) continue;
      memory = absl::StrCat(prepend->text, text);
    } else {
      ASSIGN_OR_RETURN(memory, ReplaceAll(text, std::get<ReplaceStep>(step), most_bytes));
    }
    if (memory.size() > most_bytes) return TooLong(most_bytes);
    text = memory;
  }
  return text;
}

}  // namespace trainyard
