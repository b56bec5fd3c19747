#include "common/utf8.h"

#include <cstring>

namespace trainyard {
namespace {

// The front of a text: a whole character, or a malformed part.
struct Utf8Front {
  size_t bytes;
  bool whole;
};

Utf8Front FrontOf(absl::string_view text) {
  const uint8_t first = uint8_t(text[0]);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t bytes = Utf8Bytes(text[0]);
  // The limits of the second byte exclude overlong forms, surrogates and values beyond U+10FFFF.
  const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {i, false};
    const uint8_t byte = uint8_t(text[i]);
    const bool continues = i == 1 ? byte >= low && byte <= high : (byte & 0xC0) == 0x80;
    if (!continues) return {i, false};
  }
  return {bytes, true};
}

// Returns how many bytes at the front are ASCII, perhaps seven fewer than there are.
size_t AsciiFront(absl::string_view text) {
  size_t at = 0;
  for (uint64_t eight; at + sizeof(eight) <= text.size(); at += sizeof(eight)) {
    std::memcpy(&eight, text.data() + at, sizeof(eight));
    if ((eight & 0x8080808080808080u) != 0) break;
  }
  return at;
}

}  // namespace

void AppendUtf8(std::string& out, uint32_t code_point) {
  const auto low = [code_point](int shift) { return char(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    out += char(code_point);
  } else if (code_point < 0x800) {
    out += {char(0xC0 | code_point >> 6), low(0)};
  } else if (code_point < 0x10000) {
    out += {char(0xE0 | code_point >> 12), low(6), low(0)};
  } else {
    out += {char(0xF0 | code_point >> 18), low(12), low(6), low(0)};
  }
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(AsciiFront(text));
    // A text of another script is read character by character: asking for ASCII each time is slow.
    for (int i = 0; i < 16 && !text.empty(); ++i) {
      const Utf8Front front = FrontOf(text);
      if (!front.whole) return false;
      text.remove_prefix(front.bytes);
    }
  }
  return true;
}

std::string ReplaceMalformed(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Utf8Front front = FrontOf(text);
    if (front.whole) {
      valid.append(text.data(), front.bytes);
    } else {
      valid += kReplacement;
    }
    text.remove_prefix(front.bytes);
  }
  return valid;
}

}  // namespace trainyard
