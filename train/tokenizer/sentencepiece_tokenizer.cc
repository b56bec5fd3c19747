#include "train/tokenizer/sentencepiece_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/utf8.h"
#include "train/tokenizer/format.h"
#include "train/tokenizer/sentencepiece_adapter.h"
#include "train/tokenizer/sentencepiece_bpe.h"

namespace trainyard {
namespace {

class SentencePieceEncoder final : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceModel& model) : model_(model) {}

  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) override {
    std::string valid;
    if (!IsUtf8(text)) {
      valid = ReplaceMalformed(text);
      text = valid;
    }
    const std::string wrong = model_.Encode(text.data(), text.size(), encoded_);
    if (!wrong.empty()) return absl::InternalError(absl::StrCat("sentencepiece: ", wrong));
    ids.insert(ids.end(), encoded_.begin(), encoded_.end());
    return absl::OkStatus();
  }

 private:
  const SentencePieceModel& model_;
  std::vector<int> encoded_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Returns an empty text, or what is wrong with the bytes.
  std::string Load(absl::string_view bytes) { return model_.Load(bytes.data(), bytes.size()); }
  // `fast` has the same ids.
  void EncodeWith(std::unique_ptr<Tokenizer> fast) { fast_ = std::move(fast); }

  std::unique_ptr<Encoder> NewEncoder() const override {
    if (fast_ != nullptr) return fast_->NewEncoder();
    return std::make_unique<SentencePieceEncoder>(model_);
  }

  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids,
                                     Specials specials) const override {
    std::string text;
    std::vector<int> part;  // Ids between two special tokens.
    std::string wrong;
    const auto flush = [&] {
      std::string decoded;
      if (!part.empty() && wrong.empty()) wrong = model_.Decode(part, decoded);
      text += decoded;
      part.clear();
    };
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab()) {
        return absl::OutOfRangeError(absl::StrCat("wanted ids of tokens, 0 to ", vocab() - 1,
                                                  ", found ", id, ", which no token has"));
      }
      if (!model_.IsControl(id)) {
        part.push_back(id);
      } else if (specials == Specials::kKeep) {
        flush();
        text += model_.TextOf(id);
      }
    }
    flush();
    if (!wrong.empty()) return absl::InternalError(absl::StrCat("sentencepiece: ", wrong));
    return text;
  }

  int64_t vocab() const override { return model_.size(); }

  std::optional<int32_t> Find(absl::string_view token) const override {
    const int id = model_.Find(std::string(token));
    if (id < 0) return std::nullopt;
    return id;
  }

 private:
  SentencePieceModel model_;
  std::unique_ptr<Tokenizer> fast_;  // Null: the library encodes.
};

}  // namespace

const TokenizerFormat& SentencePieceFormat() {
  static const TokenizerFormat kFormat = {
      .name = "a model of SentencePiece",
      .file = "tokenizer.model",
      .is = [](const auto&, absl::string_view) { return true; },
      .read = [](const auto&, absl::string_view bytes) { return ReadSentencePiece(bytes); }};
  return kFormat;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadSentencePiece(absl::string_view bytes) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  const std::string wrong = tokenizer->Load(bytes);
  if (wrong.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> fast, SentencePieceBpe(bytes));
    tokenizer->EncodeWith(std::move(fast));
    return tokenizer;
  }
  return absl::InvalidArgumentError(absl::StrCat("wanted ", TokenizerFormatNames(),
                                                 ", found bytes that are none of them (",
                                                 ValidUtf8(wrong), ")"));
}

}  // namespace trainyard
