#include "train/tokenizer/bpe.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rng.h"
#include "common/utf8.h"

namespace trainyard {
namespace {

constexpr char kWordMark[] = "\xE2\x96\x81";  // U+2581, which SentencePiece has for a space.
constexpr size_t kWordMarkBytes = sizeof(kWordMark) - 1;
constexpr size_t kSlots = 1 << 15;  // 2 MiB.

std::unique_ptr<const CodePointSet> CharactersBeforeMark(const Vocabulary& words) {
  CodePointRanges before = {{0x2581, 0x2581}};
  for (int64_t id = 0; id < words.end(); ++id) {
    const std::string* const token = words.TextOf(int32_t(id));
    if (token == nullptr) continue;
    if (!IsUtf8(*token)) return nullptr;
    for (size_t at = token->find(kWordMark, 1); at != std::string::npos;
         at = token->find(kWordMark, at + 1)) {
      size_t last = at - 1;
      while ((uint8_t((*token)[last]) & 0xC0) == 0x80) --last;
      const uint32_t c = DecodeUtf8(token->data() + last);
      before.Add(c, c);
    }
  }
  return std::make_unique<const CodePointSet>(before);
}

}  // namespace

Bpe::Bpe(Vocabulary words, MergeTable merges, BpeOptions options)
    : words_(std::move(words)), merges_(std::move(merges)), options_(options) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const std::string token =
        options_.byte_level ? std::string(1, char(byte)) : absl::StrFormat("<0x%02X>", byte);
    byte_ids_[byte] = words_.Find(token).value_or(-1);
  }
  // A mark without a token of its own could become a part of an unk that crosses the place.
  const bool can_cut =
      !options_.byte_level && !options_.ignore_merges && words_.Find(kWordMark).has_value();
  if (can_cut) joins_next_ = CharactersBeforeMark(words_);
}

void Bpe::Symbols(absl::string_view word, std::vector<int32_t>& symbols) const {
  symbols.clear();
  bool pending = false;  // An unk that has not been appended: the next one may be fused with it.
  const auto add_unknown = [&] {
    if (!options_.unk) return;
    if (pending && !options_.fuse_unk) symbols.push_back(*options_.unk);
    pending = true;
  };
  const auto add = [&](int32_t id) {
    if (pending) symbols.push_back(*options_.unk);
    pending = false;
    symbols.push_back(id);
  };
  if (options_.byte_level) {
    for (const char byte : word) {
      const int32_t id = byte_ids_[uint8_t(byte)];
      id >= 0 ? add(id) : add_unknown();
    }
  } else {
    for (size_t at = 0; at < word.size();) {
      const absl::string_view character = word.substr(at, Utf8Bytes(word[at]));
      at += character.size();
      if (const std::optional<int32_t> id = words_.Find(character)) {
        add(*id);
        continue;
      }
      const bool has_bytes = options_.byte_fallback &&
                             std::all_of(character.begin(), character.end(), [this](char byte) {
                               return byte_ids_[uint8_t(byte)] >= 0;
                             });
      if (!has_bytes) {
        add_unknown();
        continue;
      }
      // An unk that is pending stays pending: `tokenizers` has it after the bytes.
      for (const char byte : character) symbols.push_back(byte_ids_[uint8_t(byte)]);
    }
  }
  if (pending) symbols.push_back(*options_.unk);
}

size_t Bpe::PartEnd(absl::string_view word) const {
  if (joins_next_ == nullptr) return word.size();
  for (size_t at = word.find(kWordMark, 1); at != absl::string_view::npos;
       at = word.find(kWordMark, at + 1)) {
    size_t last = at - 1;
    while ((uint8_t(word[last]) & 0xC0) == 0x80) --last;
    if (!joins_next_->Contains(DecodeUtf8(word.data() + last))) return at;
  }
  return word.size();
}

WordEncoder::WordEncoder(const Bpe& bpe) : bpe_(bpe), merger_(bpe.merges()), slots_(kSlots) {
  static_assert(sizeof(Slot) == 64);
}

void WordEncoder::Encode(absl::string_view word, std::vector<int32_t>& ids) {
  while (!word.empty()) {
    const size_t end = bpe_.PartEnd(word);
    EncodePart(word.substr(0, end), ids);
    word.remove_prefix(end);
  }
}

void WordEncoder::Compute(absl::string_view part) {
  if (bpe_.options().ignore_merges) {
    if (const std::optional<int32_t> whole = bpe_.words().Find(part)) {
      symbols_.assign(1, *whole);
      return;
    }
  }
  bpe_.Symbols(part, symbols_);
  merger_.Join(symbols_);
}

void WordEncoder::EncodePart(absl::string_view part, std::vector<int32_t>& ids) {
  if (part.size() > kKeyBytes) {
    Compute(part);
    ids.insert(ids.end(), symbols_.begin(), symbols_.end());
    return;
  }
  char bytes[sizeof(Key)] = {};
  std::memcpy(bytes, part.data(), part.size());
  bytes[kKeyBytes] = char(part.size());
  Key key;
  std::memcpy(key.data(), bytes, sizeof(bytes));
  Slot& slot = slots_[Mix(Mix(Mix(key[0]) ^ key[1]) ^ key[2]) % kSlots];
  if (slot.key != key) {
    Compute(part);
    if (symbols_.size() > kMostIds) {
      ids.insert(ids.end(), symbols_.begin(), symbols_.end());
      return;
    }
    slot.key = key;
    slot.count = int32_t(symbols_.size());
    std::copy(symbols_.begin(), symbols_.end(), slot.ids);
  }
  ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
}

}  // namespace trainyard
