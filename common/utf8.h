// UTF-8 as tokenizers need it: fast steps through a text that is known to be valid, and the repair
// of a text that is not.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr uint32_t kCodePoints = 0x110000;       // Unicode has the code points below this.
inline constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD, in place of malformed bytes.

// Returns how many bytes the character has that begins with `first`. The text must be valid.
inline size_t Utf8Bytes(char first) {
  const uint8_t byte = uint8_t(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns the code point that begins at `at`. The text must be valid.
inline uint32_t DecodeUtf8(const char* at) {
  const auto low = [at](size_t i) { return uint32_t(uint8_t(at[i]) & 0x3F); };
  const uint32_t first = uint8_t(at[0]);
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1F) << 6 | low(1);
  if (first < 0xF0) return (first & 0x0F) << 12 | low(1) << 6 | low(2);
  return (first & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3);
}

// Appends a code point, which must not be a surrogate.
void AppendUtf8(std::string& out, uint32_t code_point);

// Whether the text is valid by RFC 3629. A text of ASCII is read eight bytes at a time.
bool IsUtf8(absl::string_view text);

// Returns the text with U+FFFD in place of each malformed part. A part is the longest beginning of
// a character that is there, or else one byte: Unicode 15, section 3.9, "U+FFFD Substitution of
// Maximal Subparts". Python's bytes.decode(errors="replace") and Rust's from_utf8_lossy do the
// same, and so what Hugging Face's tokenizers are given is the same text.
std::string ReplaceMalformed(absl::string_view text);

}  // namespace trainyard
