// The alphabet of byte-level vocabularies: a printable character for each byte. The characters are
// those of GPT-2's encoder.py: a byte that is printable in Latin-1 is the character of its number,
// and the others follow from U+0100 on.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// The code point of each byte: below U+0144.
const std::array<uint32_t, 256>& ByteAlphabet();

// Returns the bytes that the characters of a text stand for. Nothing: a character stands for none,
// or the text is no valid UTF-8.
std::optional<std::string> BytesOfAlphabet(absl::string_view text);

}  // namespace trainyard
