// SHA-256 of a stream, as lower-case hexadecimal. Not thread-safe.

#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

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
