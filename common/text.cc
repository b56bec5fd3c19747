#include "common/text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

constexpr size_t kMaxContinuations = 3;  // Of one character.

bool Continues(char c) { return (uint8_t(c) & 0xC0) == 0x80; }

// Returns how many bytes the character has that begins with this byte, if it is valid.
size_t AnnouncedBytes(char first) {
  const uint8_t byte = uint8_t(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns how many bytes the first character of `text` has. 0: it is not valid.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  // Limiting the second byte's range excludes overlong forms, surrogates and values beyond
  // U+10FFFF.
  size_t bytes;
  uint8_t low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    bytes = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    bytes = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    bytes = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (!Continues(char(byte(i)))) return 0;
  }
  return bytes;
}

// The marks that change the direction of a text (UAX #9), and the two that end its line.
bool IsMark(absl::string_view character) {
  if (character == "\xD8\x9C") return true;  // U+061C
  if (character.size() != 3 || character[0] != '\xE2') return false;
  const uint8_t second = uint8_t(character[1]), third = uint8_t(character[2]);
  const bool embeds = second == 0x80 && third >= 0xA8 && third <= 0xAE;      // U+2028 to U+202E
  const bool implicit = second == 0x80 && (third == 0x8E || third == 0x8F);  // U+200E, U+200F
  return embeds || implicit || (second == 0x81 && third >= 0xA6 && third <= 0xA9);  // U+2066 on
}

// Of a character of two or three bytes.
uint32_t CodeOf(absl::string_view character) {
  uint32_t code = uint8_t(character[0]) & (character.size() == 2 ? 0x1F : 0x0F);
  for (const char c : character.substr(1)) code = code << 6 | (uint8_t(c) & 0x3F);
  return code;
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string valid(text);
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(i));
    if (bytes == 0) valid[i] = '?';
    i += bytes == 0 ? 1 : bytes;
  }
  return valid;
}

std::string VisibleUtf8(absl::string_view text) {
  std::string visible;
  while (!text.empty()) {
    const absl::string_view character = text.substr(0, std::max<size_t>(CharacterBytes(text), 1));
    text.remove_prefix(character.size());
    const uint8_t byte = uint8_t(character[0]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    const bool c1 = character.size() == 2 && byte == 0xC2 && uint8_t(character[1]) < 0xA0;
    if (c0 || c1) {
      absl::StrAppend(&visible, "\\x", absl::Hex(uint8_t(character.back()), absl::kZeroPad2));
    } else if (IsMark(character)) {
      absl::StrAppend(&visible, "\\u", absl::Hex(CodeOf(character), absl::kZeroPad4));
    } else {
      absl::StrAppend(&visible, character);
    }
  }
  return visible;
}

std::string Utf8Stream::Add(char byte) {
  std::string done;
  if (!Continues(byte)) done = End();  // The character that had begun is incomplete.
  pending_ += byte;
  if (pending_.size() >= AnnouncedBytes(pending_[0])) absl::StrAppend(&done, End());
  return done;
}

std::string Utf8Stream::End() { return ValidUtf8(std::exchange(pending_, "")); }

absl::string_view CutUtf8(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && max_bytes - end < kMaxContinuations && Continues(text[end])) --end;
  return text.substr(0, end);
}

absl::string_view LastUtf8(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  absl::string_view last = text.substr(text.size() - max_bytes);
  for (size_t i = 0; i < kMaxContinuations && !last.empty() && Continues(last[0]); ++i) {
    last.remove_prefix(1);
  }
  return last;
}

}  // namespace trainyard
