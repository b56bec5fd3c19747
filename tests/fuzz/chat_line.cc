// A line of chats: the first line names a format, and the rest is the line. Whatever is accepted
// has an order of turns that is judged, and is encoded with bytes as tokens: what is refused says
// why, and what is not has a mark for each token, and a token that counts. The same bytes are read
// as a pair of answers, too: of what is accepted, both conversations could be trained on.

#include <algorithm>
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "train/chat/chat_encoder.h"
#include "train/tokenizer/byte_tokenizer.h"

namespace trainyard {
namespace {

void ReadAsPair(absl::string_view line) {
  const auto pair = ReadChatPair(line);
  if (!pair.ok()) return fuzz::CheckRefusal(pair.status());
  for (const std::vector<ChatMessage>* const side : {&pair->chosen, &pair->rejected}) {
    CHECK(CheckTurns(*side).ok());
    CHECK(2 * pair->answers_before + 2 <= side->size()) << pair->answers_before;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const ChatFormat* const format = FindChatFormat(input.Line());
  const std::string rest(input.Rest());
  ReadAsPair(rest);
  const auto line = ReadChatLine(rest);
  if (!line.ok()) {
    fuzz::CheckRefusal(line.status());
    return 0;
  }
  CHECK(line->messages.empty() != line->segments.empty()) << line->messages.size();
  if (!line->segments.empty()) {
    const ByteTokenizer bytes;
    const auto tokenizer = ChatTokenizer::Create(bytes, {});
    CHECK(tokenizer.ok()) << tokenizer.status();
    EncodedLine encoded;
    CHECK((*tokenizer)->NewEncoder()->Encode(*line, encoded).ok());
    CHECK(encoded.ids.size() == encoded.counts.size()) << encoded.ids.size();
    CHECK(std::count(encoded.counts.begin(), encoded.counts.end(), 1) > 0);
    return 0;
  }
  const absl::Status turns = CheckTurns(line->messages);
  if (!turns.ok()) fuzz::CheckRefusal(turns);
  if (format == nullptr) return 0;
  const absl::Status fits = CheckFits(*format, line->messages);
  if (!fits.ok()) fuzz::CheckRefusal(fits);
  if (!turns.ok() || !fits.ok()) return 0;
  ChatScript script;
  format->render(line->messages, {.begin = "<s>", .end = "</s>", .date = "2026-01-31"}, script);
  const auto counts = [](const ChatPart& part) { return part.counts; };
  CHECK(std::any_of(script.parts().begin(), script.parts().end(), counts)) << format->name;
  return 0;
}

}  // namespace trainyard
