#include "train/tokenizer/byte_alphabet.h"

#include "common/utf8.h"

namespace trainyard {
namespace {

constexpr size_t kAlphabetEnd = 0x144;

// By code point; -1 for one that stands for no byte.
const std::array<int16_t, kAlphabetEnd>& BytesByCodePoint() {
  static const std::array<int16_t, kAlphabetEnd> bytes = [] {
    std::array<int16_t, kAlphabetEnd> made;
    made.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) made[ByteAlphabet()[byte]] = int16_t(byte);
    return made;
  }();
  return bytes;
}

}  // namespace

const std::array<uint32_t, 256>& ByteAlphabet() {
  static const std::array<uint32_t, 256> alphabet = [] {
    std::array<uint32_t, 256> made = {};
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      made[byte] = printable ? byte : next++;
    }
    return made;
  }();
  return alphabet;
}

std::optional<std::string> BytesOfAlphabet(absl::string_view text) {
  if (!IsUtf8(text)) return std::nullopt;
  std::string bytes;
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    const uint32_t c = DecodeUtf8(text.data() + at);
    if (c >= kAlphabetEnd || BytesByCodePoint()[c] < 0) return std::nullopt;
    bytes += char(BytesByCodePoint()[c]);
  }
  return bytes;
}

}  // namespace trainyard
