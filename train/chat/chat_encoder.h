// Lines of chats as token ids, with a mark for each that counts in the loss. Start at
// ChatTokenizer::Create.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/chat/choose_format.h"
#include "train/chat/conversation.h"
#include "train/chat/line_encoder.h"
#include "train/chat/prompts.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Encodes for one thread. Not thread-safe.
class ChatEncoder final : public LineEncoder {
 public:
  // Reads the line (ReadChatLine, or ReadChatPair), and encodes what it says.
  absl::Status Encode(absl::string_view line, EncodedLine& out) override;
  // Replaces `out` by the tokens of a line. The ids of a conversation are those of
  // apply_chat_template of transformers for the same messages without tools. A segment that begins
  // within a word is encoded as part of the word; a token that reaches over the border between two
  // segments belongs to the second. Errors: those of CheckTurns, CheckFits and Encoder::Encode.
  absl::Status Encode(const ChatLine& line, EncodedLine& out);
  // Does the same for both conversations of a pair. The answers before those to be compared do not
  // count.
  absl::Status Encode(const ChatPair& pair, EncodedLine& out);

  // Returns what stands before the answer to the last message of a conversation, which is the
  // user's. The ids end where those that count would begin. Errors: those of Encode.
  absl::StatusOr<EncodedPrompt> EncodeQuestion(std::vector<ChatMessage> messages);

 private:
  friend class ChatTokenizer;
  ChatEncoder(const Tokenizer& tokenizer, const ChosenChatFormat& chosen, bool pairs)
      : tokenizer_(tokenizer), chosen_(chosen), pairs_(pairs), encoder_(tokenizer.NewEncoder()) {}

  absl::StatusOr<ChatScript> Rendered(const std::vector<ChatMessage>& messages) const;
  absl::Status Append(const ChatScript& script, EncodedLine& out);

  // Encodes parts that no token cuts, but perhaps one at the front.
  absl::Status EncodeRun(std::span<const ChatPart> run, EncodedLine& out);

  const Tokenizer& tokenizer_;
  const ChosenChatFormat& chosen_;
  const bool pairs_;
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

  // The encoder must not outlive this. `pairs`: its lines are pairs of answers.
  std::unique_ptr<ChatEncoder> NewEncoder(bool pairs = false) const;
  const ChosenChatFormat& chosen() const { return chosen_; }

 private:
  ChatTokenizer(const Tokenizer& tokenizer, ChosenChatFormat chosen)
      : tokenizer_(tokenizer), chosen_(std::move(chosen)) {}

  const Tokenizer& tokenizer_;
  const ChosenChatFormat chosen_;
};

}  // namespace trainyard
