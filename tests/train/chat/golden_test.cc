// Proves that conversations become the texts and ids that apply_chat_template of transformers makes
// of them with the published templates of each format, and that the answers alone count.
// tests/golden/make_chat.py made the files.

#include <gmock/gmock.h>

#include <cctype>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/crc32.h"
#include "tests/train/chat/golden_chat.h"
#include "train/chat/chat_encoder.h"

namespace trainyard {
namespace {

std::string TextOf(const ChatScript& script) {
  std::string text;
  for (const ChatPart& part : script.parts()) text += part.text;
  return text;
}

std::string Checksum(const std::vector<int32_t>& ids) {
  return absl::StrFormat("%08x", Crc32(0, ids.data(), ids.size() * sizeof(int32_t)));
}

// Whether a conversation is refused though the template writes it: what would be lost, or teach the
// model to say nothing.
bool IsRefused(const ChatFormat& format, const std::vector<ChatMessage>& messages) {
  return !CheckTurns(messages).ok() || !CheckFits(format, messages).ok();
}

class GoldenChatFormat : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenChatFormat, IsWhatTransformersMake) {
  const GoldenChat golden = OpenGoldenChat(GetParam());
  const auto tokenizer = ChatTokenizer::Create(*golden.tokenizer, golden.chosen);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encoder = (*tokenizer)->NewEncoder();
  const auto plain = golden.tokenizer->NewEncoder();
  const std::vector<std::string> lines = GoldenConversations();
  ASSERT_EQ(golden.file["cases"].size(), lines.size());
  int encoded_lines = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& wanted = golden.file["cases"][i];
    const auto line = ReadChatLine(lines[i]);
    ASSERT_TRUE(line.ok()) << line.status();
    const bool refused = IsRefused(*golden.chosen.format, line->messages);
    EncodedLine encoded;
    EXPECT_EQ(encoder->Encode(*line, encoded).ok(), !refused) << lines[i];
    if (wanted.contains("refused")) {
      EXPECT_TRUE(refused) << lines[i];
      continue;
    }
    ChatScript script;
    golden.chosen.format->render(line->messages, golden.chosen.settings, script);
    if (*golden.chosen.format->no_system == '\0' || line->messages[0].role != ChatRole::kSystem) {
      EXPECT_EQ(TextOf(script), wanted["text"].get<std::string>());
    }
    std::vector<int32_t> ids;
    EXPECT_TRUE(plain->Encode(wanted["text"].get<std::string>(), ids).ok());
    EXPECT_EQ(Checksum(ids), wanted["ids"].get<std::string>()) << wanted["text"];
    if (refused) continue;
    EXPECT_EQ(Checksum(encoded.ids), wanted["ids"].get<std::string>()) << wanted["text"];
    ++encoded_lines;
  }
  EXPECT_GE(encoded_lines, 4);
}

// R1 begins to think where its template says so. The lines that train it have no thoughts.
TEST_P(GoldenChatFormat, AsksAsTransformersDo) {
  const GoldenChat golden = OpenGoldenChat(GetParam());
  const auto tokenizer = ChatTokenizer::Create(*golden.tokenizer, golden.chosen);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encoder = (*tokenizer)->NewEncoder();
  const std::vector<std::string> lines = GoldenConversations();
  int questions = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& wanted = golden.file["cases"][i];
    std::vector<ChatMessage> messages = ReadChatLine(lines[i])->messages;
    if (!wanted.contains("question") || IsRefused(*golden.chosen.format, messages)) continue;
    const std::string text = wanted["text"];
    messages.pop_back();
    const auto question = encoder->EncodeQuestion(messages);
    ASSERT_TRUE(question.ok()) << question.status();
    std::vector<int32_t> ids = question->ids;
    if (std::string(GetParam()) == "deepseek-r1") {
      EXPECT_TRUE(golden.tokenizer->NewEncoder()->Encode("<think>\n", ids).ok());
    }
    EXPECT_EQ(Checksum(ids), wanted["question"].get<std::string>()) << text;
    ASSERT_TRUE(question->end) << text;
    const std::string end = *golden.tokenizer->Decode({{*question->end}}, Specials::kKeep);
    EXPECT_GT(text.rfind(end), text.size() - end.size() - 20) << text << ": " << end;
    ++questions;
  }
  EXPECT_GE(questions, 3);
}

TEST_P(GoldenChatFormat, CountsTheAnswersAlone) {
  const std::map<std::string, std::string> wanted = {
      {"chatml", "two<|im_end|>four<|im_end|>"},
      {"llama2", " two </s> four </s>"},
      {"llama3", "two<|eot_id|>four<|eot_id|>"},
      {"llama3.1", "two<|eot_id|>four<|eot_id|>"},
      {"llama3.2", "two<|eot_id|>four<|eot_id|>"},
      {"qwen2", "two<|im_end|>four<|im_end|>"},
      {"qwen2.5", "two<|im_end|>four<|im_end|>"},
      {"qwen3", "two<|im_end|><think>\n\n</think>\n\nfour<|im_end|>"},
      {"qwen3-instruct", "two<|im_end|>four<|im_end|>"},
      {"mistral", "two</s>four</s>"},
      {"mistral-nemo", "two</s>four</s>"},
      {"mistral-small", "two</s>four</s>"},
      {"gemma", "two<end_of_turn>four<end_of_turn>"},
      {"gemma3", "two<end_of_turn>four<end_of_turn>"},
      {"deepseek-v3",
       "two<\uff5cend\u2581of\u2581sentence\uff5c>four<\uff5cend\u2581of\u2581sentence\uff5c>"},
      {"deepseek-r1",
       "two<\uff5cend\u2581of\u2581sentence\uff5c>four<\uff5cend\u2581of\u2581sentence\uff5c>"},
      {"phi3", "two<|end|>four<|end|>"},
      {"phi3.5", "two<|end|>four<|end|>"},
      {"phi4", "two<|im_end|>four<|im_end|>"},
      {"phi4-mini", "two<|end|>four<|end|>"},
      {"gpt-oss",
       "<|channel|>final<|message|>two<|end|><|channel|>analysis<|message|>a thought<|end|>"
       "<|start|>assistant<|channel|>final<|message|>four<|return|>"}};
  const GoldenChat golden = OpenGoldenChat(GetParam());
  const auto tokenizer = ChatTokenizer::Create(*golden.tokenizer, golden.chosen);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ChatLine line;
  if (*golden.chosen.format->no_system == '\0')
    line.messages.push_back({ChatRole::kSystem, "zero"});
  for (const char* text : {"one", "two", "three", "four"}) {
    const bool of_user = line.messages.empty() || line.messages.back().role != ChatRole::kUser;
    line.messages.push_back({of_user ? ChatRole::kUser : ChatRole::kAssistant, text});
  }
  if (std::string(GetParam()) == "gpt-oss") {
    line.messages.back().reasoning = "a thought";
    line.messages.back().reasoning_field = "thinking";
  }
  EncodedLine encoded;
  const absl::Status status = (*tokenizer)->NewEncoder()->Encode(line, encoded);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(encoded.ids.size(), encoded.counts.size());
  std::vector<int32_t> counted;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    if (encoded.counts[i] != 0) counted.push_back(encoded.ids[i]);
  }
  const auto decoded = golden.tokenizer->Decode(counted, Specials::kKeep);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  // Decoders of some tokenizers add or drop a space where a text begins.
  EXPECT_EQ(absl::StrReplaceAll(*decoded, {{" ", ""}}),
            absl::StrReplaceAll(wanted.at(GetParam()), {{" ", ""}}));
}

std::vector<const char*> Names() {
  std::vector<const char*> names;
  for (const ChatFormat& format : AllChatFormats()) names.push_back(format.name);
  return names;
}

std::string TestName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(uint8_t(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenChatFormat, ::testing::ValuesIn(Names()), TestName);

// The digests of the table are of templates whose renderings the test above compares, and of no
// others.
TEST(ChatFormats, HaveTheTemplatesThatWereCompared) {
  for (const ChatFormat& format : AllChatFormats()) {
    std::vector<std::string> known;
    for (const char* one : format.templates) {
      if (one != nullptr) known.push_back(one);
    }
    const auto compared =
        OpenGoldenChat(format.name).file["templates"].get<std::vector<std::string>>();
    EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(compared)) << format.name;
  }
}

}  // namespace
}  // namespace trainyard
