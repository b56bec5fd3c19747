#include "train/tokenizer/byte_tokenizer.h"

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

class ByteEncoder final : public Encoder {
 public:
  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) override {
    for (const char byte : text) ids.push_back(uint8_t(byte));
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Encoder> ByteTokenizer::NewEncoder() const {
  return std::make_unique<ByteEncoder>();
}

absl::StatusOr<std::string> ByteTokenizer::Decode(std::span<const int32_t> ids,
                                                  Specials /*specials*/) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab()) {
      return absl::OutOfRangeError(absl::StrCat("wanted bytes, 0 to 255, found the id ", id));
    }
    text += char(id);
  }
  return text;
}

std::optional<int32_t> ByteTokenizer::Find(absl::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return uint8_t(token[0]);
}

}  // namespace trainyard
