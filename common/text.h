// UTF-8: what may be put into a message. A protobuf string must be valid, or whoever receives the
// message can read none of it.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// The text with '?' for every byte that belongs to no valid character (RFC 3629: no overlong forms,
// no surrogates, nothing beyond U+10FFFF). As many bytes as before.
std::string ValidUtf8(absl::string_view text);

// ValidUtf8 of a text that comes byte by byte: as many bytes in all, whole characters at a time.
class Utf8Stream {
 public:
  std::string Add(char byte);  // What is complete by now; often nothing.
  std::string End();           // What was left: the beginning of a character.

 private:
  std::string pending_;
};

// UTF-8 that is to be read on a terminal: control characters but line breaks and tabs, which could
// make the terminal do things, as \x and two hexadecimal digits.
std::string VisibleUtf8(absl::string_view text);

// The longest start of UTF-8 that has at most `max_bytes` and ends with a whole character. Where
// the text is not valid there, at most three bytes are given up for it.
absl::string_view CutUtf8(absl::string_view text, size_t max_bytes);
// Likewise the longest end, which begins with a whole character.
absl::string_view LastUtf8(absl::string_view text, size_t max_bytes);

}  // namespace trainyard
