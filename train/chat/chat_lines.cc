#include "train/chat/chat_lines.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/chat/chat_encoder.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {
namespace {

// Increase this when a line gets other tokens or counts than in the release before.
constexpr char kRelease[] = "1";

std::string DigestOf(const OpenedTokenizer& opened, const ChosenChatFormat& chosen, bool pairs) {
  Sha256 digest;
  for (const absl::string_view part :
       {absl::string_view(kRelease), absl::string_view(opened.digest),
        absl::string_view(chosen.format == nullptr ? kNoChatFormat : chosen.format->name),
        absl::string_view(chosen.settings.begin), absl::string_view(chosen.settings.end),
        absl::string_view(chosen.settings.date)}) {
    digest.Update(part);
    digest.Update("\0", 1);
  }
  if (pairs) digest.Update("pairs");
  return digest.HexDigest();
}

class ChatLines final : public LineEncoding {
 public:
  ChatLines(OpenedTokenizer opened, std::unique_ptr<ChatTokenizer> chat, bool pairs)
      : opened_(std::move(opened)),
        chat_(std::move(chat)),
        pairs_(pairs),
        digest_(DigestOf(opened_, chat_->chosen(), pairs)) {}

  std::unique_ptr<LineEncoder> NewEncoder() const override { return chat_->NewEncoder(pairs_); }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return opened_.path; }
  std::string tokenizer_sha256() const override { return opened_.digest; }

 private:
  const OpenedTokenizer opened_;
  const std::unique_ptr<ChatTokenizer> chat_;
  const bool pairs_;
  const std::string digest_;
};

class TextEncoder final : public LineEncoder {
 public:
  explicit TextEncoder(std::unique_ptr<Encoder> encoder) : encoder_(std::move(encoder)) {}
  absl::Status Encode(absl::string_view line, EncodedLine& out) override {
    out.clear();
    RETURN_IF_ERROR(encoder_->Encode(line, out.ids));
    out.counts.assign(out.ids.size(), 1);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Encoder> encoder_;
};

class Texts final : public LineEncoding {
 public:
  explicit Texts(OpenedTokenizer opened)
      : opened_(std::move(opened)),
        digest_(Sha256Of(absl::StrCat("text", kRelease, opened_.digest))) {}

  std::unique_ptr<LineEncoder> NewEncoder() const override {
    return std::make_unique<TextEncoder>(opened_.tokenizer->NewEncoder());
  }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return opened_.path; }
  std::string tokenizer_sha256() const override { return opened_.digest; }

 private:
  const OpenedTokenizer opened_;
  const std::string digest_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenChatLines(
    const LineEncodingOptions& options) {
  ASSIGN_OR_RETURN(OpenedTokenizer opened, OpenTokenizer(options.tokenizer, options.roots));
  RETURN_IF_ERROR(CheckVocabulary(opened, options.vocab));
  if (options.texts) return std::make_shared<const Texts>(std::move(opened));
  ASSIGN_OR_RETURN(ChosenChatFormat chosen, ChooseChatFormat({.name = options.format,
                                                              .date = options.date,
                                                              .tokenizer = options.tokenizer},
                                                             options.roots));
  ASSIGN_OR_RETURN(std::unique_ptr<ChatTokenizer> chat,
                   ChatTokenizer::Create(*opened.tokenizer, std::move(chosen)));
  return std::make_shared<const ChatLines>(std::move(opened), std::move(chat), options.pairs);
}

}  // namespace trainyard
