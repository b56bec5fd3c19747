#include "train/chat/chat_encoder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shown.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// A conversation in which a format writes all of its tokens.
std::vector<ChatMessage> Example(const ChatFormat& format) {
  std::vector<ChatMessage> messages;
  if (*format.no_system == '\0') messages.push_back({ChatRole::kSystem, "x"});
  for (int turn = 0; turn < 2; ++turn) {
    messages.push_back({ChatRole::kUser, "x"});
    messages.push_back({ChatRole::kAssistant, "x"});
  }
  if (*format.reasoning_field != '\0') {
    messages.back().reasoning = "x";
    messages.back().reasoning_field = format.reasoning_field;
  }
  return messages;
}

absl::StatusOr<std::vector<int32_t>> IdsOf(Encoder& encoder, absl::string_view text) {
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(encoder.Encode(text, ids));
  return ids;
}

// OK if the token is found in a text, and what is before it is encoded as if it were alone. Then a
// text may be cut before each token.
absl::Status CheckToken(const Tokenizer& tokenizer, Encoder& encoder, const std::string& format,
                        const std::string& token) {
  const auto id = tokenizer.Find(token);
  if (!id) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a tokenizer with the token ",
                                                   Shown(token), ", which the format ", format,
                                                   " writes, found none"));
  }
  constexpr absl::string_view kBefore = "x \n";
  ASSIGN_OR_RETURN(const auto before, IdsOf(encoder, kBefore));
  ASSIGN_OR_RETURN(const auto after, IdsOf(encoder, absl::StrCat(token, "x")));
  ASSIGN_OR_RETURN(const auto both, IdsOf(encoder, absl::StrCat(kBefore, token, "x")));
  const bool begins = !after.empty() && after[0] == *id;
  const bool cuts = both.size() > before.size() && both[before.size()] == *id &&
                    std::equal(before.begin(), before.end(), both.begin());
  if (begins && cuts) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a tokenizer that finds the token ", Shown(token), " in a text, as the format ",
      format, " writes it, found one that does not; tokenizer.json has such tokens in ",
      "added_tokens, with lstrip false"));
}

size_t CommonPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTokenizer>> ChatTokenizer::Create(const Tokenizer& tokenizer,
                                                                     ChosenChatFormat chosen) {
  ChatScript script;
  if (chosen.format != nullptr) {
    chosen.format->render(Example(*chosen.format), chosen.settings, script);
  }
  std::set<std::string> tokens;
  for (const ChatPart& part : script.parts()) {
    if (part.is_token) tokens.insert(part.text);
  }
  const std::unique_ptr<Encoder> encoder = tokenizer.NewEncoder();
  for (const std::string& token : tokens) {
    RETURN_IF_ERROR(CheckToken(tokenizer, *encoder, chosen.format->name, token));
  }
  return std::unique_ptr<ChatTokenizer>(new ChatTokenizer(tokenizer, std::move(chosen)));
}

std::unique_ptr<ChatEncoder> ChatTokenizer::NewEncoder(bool pairs) const {
  return std::unique_ptr<ChatEncoder>(new ChatEncoder(tokenizer_, chosen_, pairs));
}

absl::Status ChatEncoder::EncodeRun(std::span<const ChatPart> run, EncodedLine& out) {
  std::string text;
  for (const ChatPart& part : run) text += part.text;
  ids_.clear();
  RETURN_IF_ERROR(encoder_->Encode(text, ids_));
  const size_t begin = out.ids.size();
  out.ids.insert(out.ids.end(), ids_.begin(), ids_.end());
  out.counts.resize(out.ids.size(), run[0].counts);
  size_t bytes = 0;
  for (size_t i = 1; i < run.size(); ++i) {
    bytes += run[i - 1].text.size();
    if (run[i].counts == run[i - 1].counts) continue;
    // The tokens before the border are those that the text before it has by itself.
    size_t before = 1;
    if (i > 1 || !run[0].is_token) {
      before_.clear();
      RETURN_IF_ERROR(encoder_->Encode(absl::string_view(text).substr(0, bytes), before_));
      before = CommonPrefix(before_, ids_);
    }
    std::fill(out.counts.begin() + ptrdiff_t(begin + before), out.counts.end(),
              uint8_t(run[i].counts));
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatScript> ChatEncoder::Rendered(const std::vector<ChatMessage>& messages) const {
  if (chosen_.format == nullptr) {
    return absl::InvalidArgumentError(
        "wanted segments, since no format is to be written, found a conversation");
  }
  RETURN_IF_ERROR(CheckTurns(messages));
  RETURN_IF_ERROR(CheckFits(*chosen_.format, messages));
  ChatScript script;
  chosen_.format->render(messages, chosen_.settings, script);
  return script;
}

absl::StatusOr<EncodedPrompt> ChatEncoder::EncodeQuestion(std::vector<ChatMessage> messages) {
  messages.push_back({ChatRole::kAssistant, "x"});  // What the answer is does not matter.
  ASSIGN_OR_RETURN(const ChatScript script, Rendered(messages));
  std::span<const ChatPart> parts = script.parts();
  while (!parts.back().counts) parts = parts.first(parts.size() - 1);
  EncodedPrompt question;
  if (parts.back().is_token) question.end = tokenizer_.Find(parts.back().text);
  while (!parts.empty() && parts.back().counts) parts = parts.first(parts.size() - 1);
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  RETURN_IF_ERROR(encoder_->Encode(text, question.ids));
  return question;
}

absl::Status ChatEncoder::Encode(absl::string_view line, EncodedLine& out) {
  if (pairs_) {
    ASSIGN_OR_RETURN(const ChatPair pair, ReadChatPair(line));
    return Encode(pair, out);
  }
  ASSIGN_OR_RETURN(const ChatLine chat, ReadChatLine(line));
  return Encode(chat, out);
}

absl::Status ChatEncoder::Encode(const ChatLine& line, EncodedLine& out) {
  out.clear();
  ChatScript script;
  for (const ChatSegment& segment : line.segments) script.Text(segment.text, segment.train);
  if (line.segments.empty()) {
    ASSIGN_OR_RETURN(script, Rendered(line.messages));
  }
  return Append(script, out);
}

absl::Status ChatEncoder::Encode(const ChatPair& pair, EncodedLine& out) {
  out.clear();
  for (const std::vector<ChatMessage>* const messages : {&pair.chosen, &pair.rejected}) {
    out.rejected = out.ids.size();
    ASSIGN_OR_RETURN(const ChatScript script, Rendered(*messages));
    RETURN_IF_ERROR(Append(script, out));
    // Between two answers there are tokens that do not count.
    auto at = out.counts.begin() + ptrdiff_t(out.rejected);
    for (size_t answer = 0; answer < pair.answers_before; ++answer) {
      at = std::find(at, out.counts.end(), uint8_t(1));
      for (; at != out.counts.end() && *at != 0; ++at) *at = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status ChatEncoder::Append(const ChatScript& script, EncodedLine& out) {
  std::span<const ChatPart> parts = script.parts();
  while (!parts.empty()) {
    const auto next = std::find_if(parts.begin() + 1, parts.end(),
                                   [](const ChatPart& part) { return part.is_token; });
    const size_t size = size_t(next - parts.begin());
    RETURN_IF_ERROR(EncodeRun(parts.first(size), out));
    parts = parts.subspan(size);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
