// Lines of chats as token ids, with a mark for each that counts in the loss. Start at
// ChatTokenizer::Create.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/chat/choose_format.h"
#include "train/chat/conversation.h"
#include "train/data/line_encoder.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Encodes for one thread. Not thread-safe.
class ChatEncoder final : public LineEncoder {
 public:
  // Reads the line (ReadChatLine), and encodes what it says.
  absl::Status Encode(absl::string_view line, EncodedLine& out) override;
  // Replaces `out` by the tokens of a line. The ids of a conversation are those of
  // apply_chat_template of transformers for the same messages without tools. A segment that begins
  // within a word is encoded as part of the word; a token that reaches over the border between two
  // segments belongs to the second. Errors: those of CheckTurns, CheckFits and Encoder::Encode.
  absl::Status Encode(const ChatLine& line, EncodedLine& out);

 private:
  friend class ChatTokenizer;
  ChatEncoder(const ChosenChatFormat& chosen, std::unique_ptr<Encoder> encoder)
      : chosen_(chosen), encoder_(std::move(encoder)) {}

  // Encodes parts that no token cuts, but perhaps one at the front.
  absl::Status EncodeRun(std::span<const ChatPart> run, EncodedLine& out);

  const ChosenChatFormat& chosen_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<int32_t> ids_, before_;  // Kept for their memory.
};

// A tokenizer with a format. Immutable and thread-safe.
class ChatTokenizer {
 public:
  // `tokenizer` must outlive it. INVALID_ARGUMENT: the format writes a token that the tokenizer
  // lacks, or does not find in a text.
  static absl::StatusOr<std::unique_ptr<ChatTokenizer>> Create(const Tokenizer& tokenizer,
                                                               ChosenChatFormat chosen);

  // The encoder must not outlive this.
  std::unique_ptr<ChatEncoder> NewEncoder() const;
  const ChosenChatFormat& chosen() const { return chosen_; }

 private:
  ChatTokenizer(const Tokenizer& tokenizer, ChosenChatFormat chosen)
      : tokenizer_(tokenizer), chosen_(std::move(chosen)) {}

  const Tokenizer& tokenizer_;
  const ChosenChatFormat chosen_;
};

}  // namespace trainyard
