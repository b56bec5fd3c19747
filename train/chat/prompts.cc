#include "train/chat/prompts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/chat/chat_encoder.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tokenizer/open_tokenizer.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {
namespace {

class Codec final : public PromptCodec {
 public:
  // `chat`: null where prompts are no questions.
  Codec(OpenedTokenizer opened, std::unique_ptr<ChatTokenizer> chat)
      : opened_(std::move(opened)), chat_(std::move(chat)) {}

  absl::StatusOr<EncodedPrompt> Encode(absl::string_view prompt) const override {
    if (!chat_) return EncodeText(*opened_.tokenizer, prompt);
    return chat_->NewEncoder()->EncodeQuestion({{ChatRole::kUser, std::string(prompt)}});
  }
  std::string Decode(std::span<const int32_t> prompt,
                     std::span<const int32_t> written) const override {
    std::optional<TextStream> stream(std::in_place, *opened_.tokenizer,
                                     std::vector<int32_t>(prompt.begin(), prompt.end()));
    std::string text;
    for (const int32_t id : written) {
      const absl::StatusOr<std::string> more = stream->Add(id);
      absl::StrAppend(&text, more.value_or("\xef\xbf\xbd"));
      if (!more.ok()) stream.emplace(*opened_.tokenizer, std::vector<int32_t>());
    }
    return absl::StrCat(text, stream->End().value_or(""));
  }
  int64_t vocab() const override { return opened_.tokenizer->vocab(); }
  std::string tokenizer_sha256() const override { return opened_.digest; }

 private:
  const OpenedTokenizer opened_;
  const std::unique_ptr<ChatTokenizer> chat_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PromptCodec>> OpenPromptCodec(const PromptOptions& options) {
  OpenedTokenizer opened{.tokenizer = std::make_unique<ByteTokenizer>(), .path = {}, .digest = {}};
  if (!options.tokenizer.empty()) {
    ASSIGN_OR_RETURN(opened, OpenTokenizer(options.tokenizer, options.roots));
  }
  RETURN_IF_ERROR(CheckVocabulary(opened, options.vocab));
  std::unique_ptr<ChatTokenizer> chat;
  if (options.chats) {
    ASSIGN_OR_RETURN(ChosenChatFormat chosen, ChooseChatFormat({.name = options.format,
                                                                .date = options.date,
                                                                .tokenizer = options.tokenizer},
                                                               options.roots));
    ASSIGN_OR_RETURN(chat, ChatTokenizer::Create(*opened.tokenizer, std::move(chosen)));
  }
  return std::make_unique<Codec>(std::move(opened), std::move(chat));
}

absl::StatusOr<EncodedPrompt> EncodeText(const Tokenizer& tokenizer, absl::string_view text) {
  EncodedPrompt encoded{.ids = tokenizer.prefix()};
  RETURN_IF_ERROR(tokenizer.NewEncoder()->Encode(text.empty() ? "\n" : text, encoded.ids));
  return encoded;
}

}  // namespace trainyard
