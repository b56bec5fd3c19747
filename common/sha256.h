// SHA-256 as lower-case hexadecimal.

#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

std::string Sha256Of(absl::string_view text);

// The hash of a stream. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(const void* data, size_t bytes);
  void Update(absl::string_view text) { Update(text.data(), text.size()); }
  std::string HexDigest();  // Ends the stream; call it once.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard
