#include "train/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

using Memory = PreTokenizer::Memory;
using Parts = std::vector<std::pair<TextRange, bool>>;  // A range, and whether it is a match.

absl::Status TooManySteps(absl::string_view text) {
  return absl::ResourceExhaustedError(
      absl::StrCat("an expression takes too many steps on a text of ", text.size(), " bytes"));
}

void Append(absl::string_view text, TextRange range, std::vector<absl::string_view>& words) {
  if (range.begin < range.end) words.push_back(text.substr(range.begin, range.end - range.begin));
}

// The usual behavior, without a list of parts.
absl::Status Isolate(const Expression& expression, absl::string_view text,
                     std::vector<absl::string_view>& words) {
  Expression::Finder finder(expression, text);
  size_t done = 0;
  for (TextRange match; finder.Next(match); done = match.end) {
    Append(text, {done, match.begin}, words);
    Append(text, match, words);
  }
  Append(text, {done, text.size()}, words);
  return finder.gave_up() ? TooManySteps(text) : absl::OkStatus();
}

// A match that follows no match goes to the part before it. `parts` may also be read backwards.
template <typename Iterator>
void MergeMatches(Iterator begin, Iterator end, bool extend_end, Parts& merged) {
  bool after_match = false;
  for (auto part = begin; part != end; ++part) {
    if (part->second && !after_match && !merged.empty()) {
      TextRange& neighbour = merged.back().first;
      if (extend_end) {
        neighbour.end = part->first.end;
      } else {
        neighbour.begin = part->first.begin;
      }
    } else {
      merged.push_back(*part);
    }
    after_match = part->second;
  }
}

Parts Behave(const Parts& parts, SplitBehavior behavior) {
  Parts made;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return parts;
    case SplitBehavior::kRemoved:
      std::copy_if(parts.begin(), parts.end(), std::back_inserter(made),
                   [](const auto& part) { return !part.second; });
      return made;
    case SplitBehavior::kMergedWithPrevious:
      MergeMatches(parts.begin(), parts.end(), true, made);
      return made;
    case SplitBehavior::kMergedWithNext:
      MergeMatches(parts.rbegin(), parts.rend(), false, made);
      std::reverse(made.begin(), made.end());
      return made;
    case SplitBehavior::kContiguous:
      for (const auto& part : parts) {
        if (!made.empty() && made.back().second == part.second) {
          made.back().first.end = part.first.end;
        } else {
          made.push_back(part);
        }
      }
      return made;
  }
  return made;
}

absl::Status Split(const SplitStep& step, absl::string_view text, Memory& memory) {
  if (step.behavior == SplitBehavior::kIsolated) {
    return Isolate(*step.expression, text, memory.next);
  }
  Parts& parts = memory.parts;
  parts.clear();
  Expression::Finder finder(*step.expression, text);
  size_t done = 0;
  for (TextRange match; finder.Next(match); done = match.end) {
    if (match.begin > done) parts.push_back({{done, match.begin}, step.invert});
    parts.push_back({match, !step.invert});
  }
  if (finder.gave_up()) return TooManySteps(text);
  if (done < text.size()) parts.push_back({{done, text.size()}, step.invert});
  for (const auto& part : Behave(parts, step.behavior)) Append(text, part.first, memory.next);
  return absl::OkStatus();
}

size_t TotalBytes(const std::vector<absl::string_view>& words) {
  size_t bytes = 0;
  for (const absl::string_view word : words) bytes += word.size();
  return bytes;
}

// Words are views of `text`, which must not move: it has room for all that is appended.
void PrefixSpaces(Memory& memory, std::string& text) {
  text.clear();
  text.reserve(TotalBytes(memory.words) + memory.words.size());
  for (const absl::string_view word : memory.words) {
    const size_t begin = text.size();
    if (!absl::StartsWith(word, " ")) text += ' ';
    text.append(word.data(), word.size());
    memory.next.push_back(absl::string_view(text).substr(begin));
  }
}

absl::Status Metaspace(const MetaspaceStep& step, bool begins, Memory& memory, std::string& text) {
  text.clear();
  text.reserve((TotalBytes(memory.words) + memory.words.size()) * step.mark.size());
  for (size_t i = 0; i < memory.words.size(); ++i) {
    const absl::string_view word = memory.words[i];
    const size_t begin = text.size();
    const bool prepends = step.prepend == PrependScheme::kAlways ||
                          (step.prepend == PrependScheme::kFirst && begins && i == 0);
    if (prepends && !absl::StartsWith(word, " ") && !absl::StartsWith(word, step.mark)) {
      text += step.mark;
    }
    for (const char byte : word) byte == ' ' ? text.append(step.mark) : text.append(1, byte);
    const absl::string_view marked = absl::string_view(text).substr(begin);
    if (step.cut == nullptr) {
      memory.next.push_back(marked);
      continue;
    }
    const SplitStep split = {step.cut, SplitBehavior::kMergedWithNext, false};
    RETURN_IF_ERROR(Split(split, marked, memory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PreTokenizer::Cut(absl::string_view text, bool begins, Memory& memory) const {
  memory.words.assign(1, text);
  memory.texts.resize(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    memory.next.clear();
    if (const auto* const split = std::get_if<SplitStep>(&steps_[i])) {
      for (const absl::string_view word : memory.words) {
        RETURN_IF_ERROR(Split(*split, word, memory));
      }
      // If what was at the front is left out, no word is the first one.
      begins = begins && !memory.words.empty() && !memory.next.empty() &&
               memory.next[0].data() == memory.words[0].data();
    } else if (const auto* const metaspace = std::get_if<MetaspaceStep>(&steps_[i])) {
      RETURN_IF_ERROR(Metaspace(*metaspace, begins, memory, memory.texts[i]));
    } else {
      PrefixSpaces(memory, memory.texts[i]);
    }
    std::swap(memory.words, memory.next);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
