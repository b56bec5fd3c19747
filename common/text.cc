#include "common/text.h"

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
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = uint8_t(text[i]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F, which are two bytes.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && uint8_t(text[i + 1]) < 0xA0;
    if (c1) ++i;
    if (c0 || c1) {
      absl::StrAppend(&visible, "\\x", absl::Hex(uint8_t(text[i]), absl::kZeroPad2));
    } else {
      visible += text[i];
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
