#include "train/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/utf8.h"

namespace trainyard {
namespace {

// Returns where the last character of a text that is not empty begins.
size_t LastCharacter(absl::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder()
    : states_(1), spaces_(WhiteSpace()), words_(WordCharacters()) {}

void AddedTokenFinder::Add(absl::string_view text, const AddedToken& token) {
  if (text.empty()) return;
  uint32_t state = 0;
  for (const char byte : text) {
    const auto& edges = states_[state].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(),
                                   [byte](const auto& one) { return one.first == byte; });
    if (edge != edges.end()) {
      state = edge->second;
      continue;
    }
    const uint32_t made = uint32_t(states_.size());
    states_[state].edges.emplace_back(byte, made);
    states_.emplace_back();
    state = made;
  }
  if (states_[state].token >= 0) return;
  states_[state].token = int32_t(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
  begins_[uint8_t(text[0])] = true;
}

std::pair<size_t, int32_t> AddedTokenFinder::Longest(absl::string_view text) const {
  std::pair<size_t, int32_t> longest = {0, -1};
  uint32_t state = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto& edges = states_[state].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(),
                                   [&](const auto& one) { return one.first == text[i]; });
    if (edge == edges.end()) break;
    state = edge->second;
    if (states_[state].token >= 0) longest = {i + 1, states_[state].token};
  }
  return longest;
}

bool AddedTokenFinder::IsSingleWord(absl::string_view text, TextRange range) const {
  const absl::string_view before = text.substr(0, range.begin), after = text.substr(range.end);
  const bool joins_before =
      !before.empty() && words_.Contains(DecodeUtf8(before.data() + LastCharacter(before)));
  const bool joins_after = !after.empty() && words_.Contains(DecodeUtf8(after.data()));
  return !joins_before && !joins_after;
}

void AddedTokenFinder::Cut(absl::string_view text, std::vector<AddedPiece>& pieces) const {
  pieces.clear();
  size_t done = 0;  // Where the text after the last token begins.
  for (size_t at = 0; at < text.size();) {
    if (!begins_[uint8_t(text[at])]) {
      ++at;
      continue;
    }
    const auto [bytes, index] = Longest(text.substr(at));
    if (bytes == 0) {
      ++at;
      continue;
    }
    TextRange range = {at, at + bytes};
    at = range.end;
    const Traits& token = tokens_[size_t(index)];
    if (token.single_word && !IsSingleWord(text, range)) continue;
    if (token.lstrip) {
      while (range.begin > done) {
        const size_t last = LastCharacter(text.substr(0, range.begin));
        if (!spaces_.Contains(DecodeUtf8(text.data() + last))) break;
        range.begin = last;
      }
    }
    if (token.rstrip) {
      while (range.end < text.size() && spaces_.Contains(DecodeUtf8(text.data() + range.end))) {
        range.end += Utf8Bytes(text[range.end]);
      }
    }
    if (done < range.begin) pieces.push_back({{done, range.begin}});
    pieces.push_back({range, token.id});
    done = range.end;
  }
  if (done < text.size()) pieces.push_back({{done, text.size()}});
}

}  // namespace trainyard
