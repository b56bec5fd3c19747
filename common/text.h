// UTF-8 for messages. A protobuf string must be valid UTF-8, or the receiver cannot read any of the
// message.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the text with '?' for every byte that is not part of a valid character (RFC 3629: no
// overlong forms, no surrogates, nothing beyond U+10FFFF). The number of bytes stays the same.
std::string ValidUtf8(absl::string_view text);

// Does the same for a text that comes byte by byte. Returns whole characters, and as many bytes in
// total.
class Utf8Stream {
 public:
  std::string Add(char byte);  // Returns the characters that are now complete; often none.
  std::string End();           // Returns the rest: an incomplete character.

 private:
  std::string pending_;
};

// Makes UTF-8 safe for a terminal and a page: writes control characters, except line breaks and
// tabs, as \x and two hexadecimal digits, and characters that change the direction or the line of
// what follows as \u and four. So a text cannot look like another one.
std::string VisibleUtf8(absl::string_view text);

// Returns the longest prefix of UTF-8 that has at most `max_bytes` and ends with a whole character.
// If the text is not valid there, drops at most three bytes.
absl::string_view CutUtf8(absl::string_view text, size_t max_bytes);
// Returns the longest suffix in the same way. It begins with a whole character.
absl::string_view LastUtf8(absl::string_view text, size_t max_bytes);

}  // namespace trainyard
