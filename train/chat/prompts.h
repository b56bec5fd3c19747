// How prompts become tokens, and how what a model wrote becomes text.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"

namespace trainyard {

// What stands before a text that a model shall write.
struct EncodedPrompt {
  std::vector<int32_t> ids = {};
  // The token that ends the text; absent: none does, or the format ends it with a text.
  std::optional<int32_t> end = {};
};

// The training loop knows tokenizers by this class alone: SentencePiece brings a protobuf of its
// own, which no program with gRPC can have. Thread-safe.
class PromptCodec {
 public:
  virtual ~PromptCodec() = default;
  virtual absl::StatusOr<EncodedPrompt> Encode(absl::string_view prompt) const = 0;
  // Returns the text of `written` behind `prompt`, in UTF-8 with '?' for bytes that belong to no
  // character, and U+FFFD for ids that stand for no token.
  virtual std::string Decode(std::span<const int32_t> prompt,
                             std::span<const int32_t> written) const = 0;
  virtual int64_t vocab() const = 0;  // Ids are below it.
  // The SHA-256 of the tokenizer's file; "": the tokens are bytes.
  virtual std::string tokenizer_sha256() const = 0;
};

struct PromptOptions {
  std::string tokenizer = {};  // A file or directory; "": the tokens are bytes.
  // Whether prompts are questions of chats, with their format and date (ChatFormatChoice).
  bool chats = false;
  std::string format = {};
  std::string date = {};
  int64_t vocab = 0;  // Of the model, which must have all ids.
  Roots roots = {};
};

using OpenPrompts =
    std::function<absl::StatusOr<std::unique_ptr<PromptCodec>>(const PromptOptions&)>;

// Errors name the path: those of OpenTokenizer, CheckVocabulary, ChooseChatFormat and
// ChatTokenizer::Create.
absl::StatusOr<std::unique_ptr<PromptCodec>> OpenPromptCodec(const PromptOptions& options);

class Tokenizer;

// Returns the tokens of a text that a model shall go on with: those before any text, and the
// text's. An empty text stands for a line break. Errors: those of Encoder::Encode.
absl::StatusOr<EncodedPrompt> EncodeText(const Tokenizer& tokenizer, absl::string_view text);

}  // namespace trainyard
