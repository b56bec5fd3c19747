// Proves that a line of chats is read in each of its four forms, and that everything else is
// refused with the field and what was wanted.

#include "train/chat/conversation.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

std::string Refusal(absl::string_view line) {
  const auto read = ReadChatLine(line);
  return read.ok() ? "accepted" : std::string(read.status().message());
}

// "system: x | user: y", with the segments that count in brackets.
std::string Shape(absl::string_view line) {
  const auto read = ReadChatLine(line);
  if (!read.ok()) return read.status().ToString();
  std::string shape;
  for (const ChatMessage& message : read->messages) {
    absl::StrAppend(&shape, Name(message.role), ": ", message.content, " | ");
  }
  for (const ChatSegment& segment : read->segments) {
    absl::StrAppend(&shape, segment.train ? "[" : "", segment.text, segment.train ? "]" : "");
  }
  return shape;
}

TEST(ReadChatLine, ReadsTheFourForms) {
  EXPECT_EQ(Shape(R"({"id": 7, "messages": [{"role": "system", "content": "s"},
                      {"role": "user", "content": "q", "name": "Ada"},
                      {"role": "assistant", "content": "a", "tool_calls": []}]})"),
            "system: s | user: q | assistant: a | ");
  // Public data sets repeat the first question.
  EXPECT_EQ(Shape(R"({"prompt": "q", "messages": [{"role": "user", "content": "q"}]})"),
            "user: q | ");
  EXPECT_EQ(Shape(R"({"conversations": [{"from": "human", "value": "q"},
                      {"from": "gpt", "value": "a"}]})"),
            "user: q | assistant: a | ");
  EXPECT_EQ(Shape(R"({"prompt": "q", "completion": "a"})"), "user: q | assistant: a | ");
  EXPECT_EQ(Shape(R"({"segments": [{"text": "q\n", "train": false},
                      {"text": "a", "train": true}]})"),
            "q\n[a]");
}

std::string Question(absl::string_view line) {
  const auto read = ReadChatQuestion(line);
  if (!read.ok()) return std::string(read.status().message());
  std::string shape;
  for (const ChatMessage& message : *read) absl::StrAppend(&shape, message.content, " | ");
  return shape;
}

TEST(ReadChatQuestion, IsWhatStandsBeforeTheLastAnswer) {
  EXPECT_EQ(Question(R"({"prompt": "q"})"), "q | ");
  EXPECT_EQ(Question(R"({"prompt": "q", "completion": "a"})"), "q | ");
  EXPECT_EQ(Question(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"), "q | ");
  // Whole conversations repeat the prompt, and may have more than it.
  EXPECT_EQ(Question(R"({"prompt": "r", "chosen": [{"role": "system", "content": "s"},
                      {"role": "user", "content": "r"}, {"role": "assistant", "content": "a"}]})"),
            "s | r | ");
  EXPECT_EQ(Question(R"({"conversations": [{"from": "human", "value": "q"},
                      {"from": "gpt", "value": "a"}, {"from": "human", "value": "r"},
                      {"from": "gpt", "value": "b"}]})"),
            "q | a | r | ");
  EXPECT_EQ(Question(R"({"messages": [{"role": "user", "content": "q"}]})"), "q | ");
}

TEST(ReadChatQuestion, IsTheUsers) {
  EXPECT_THAT(Question(R"({"messages": [{"role": "system", "content": "s"},
                      {"role": "assistant", "content": "a"}]})"),
              HasSubstr("wanted a conversation with a question of the user"));
  EXPECT_THAT(Question(R"({"segments": [{"text": "a", "train": true}]})"),
              HasSubstr("found segments"));
  EXPECT_THAT(Question(R"({"prompt": 3})"), HasSubstr("prompt: wanted a text, found a number"));
  EXPECT_THAT(Question(R"({"prompt": "q", "tools": [1]})"), HasSubstr("tools: wanted no such"));
  EXPECT_THAT(Question(R"({"text": "q"})"), HasSubstr("wanted one of messages"));
  EXPECT_THAT(Question("[]"), HasSubstr("wanted"));
}

// "user: q | assistant: a | against user: q | assistant: b | after 0"
std::string PairShape(absl::string_view line) {
  const auto read = ReadChatPair(line);
  if (!read.ok()) return std::string(read.status().message());
  std::string shape;
  for (const auto* const side : {&read->chosen, &read->rejected}) {
    for (const ChatMessage& message : *side) {
      absl::StrAppend(&shape, Name(message.role), ": ", message.content, " | ");
    }
    absl::StrAppend(&shape, side == &read->chosen ? "against " : "after ");
  }
  return absl::StrCat(shape, read->answers_before);
}

TEST(ReadChatPair, ReadsTheFormsOfTrl) {
  const char* const kShort = "user: q | assistant: a | against user: q | assistant: b | after 0";
  EXPECT_EQ(PairShape(R"({"prompt": "q", "chosen": "a", "rejected": "b", "score": 1})"), kShort);
  EXPECT_EQ(PairShape(R"({"prompt": [{"role": "user", "content": "q"}],
                          "chosen": [{"role": "assistant", "content": "a"}],
                          "rejected": [{"role": "assistant", "content": "b"}]})"),
            kShort);
  // UltraFeedback has both forms in one.
  EXPECT_EQ(PairShape(R"({"prompt": "q", "messages": [],
      "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
      "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})"),
            kShort);
  EXPECT_EQ(PairShape(R"({"prompt": "q", "chosen": "a", "rejected": "a"})"),
            "user: q | assistant: a | against user: q | assistant: a | after 0");
  EXPECT_EQ(
      PairShape(R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
          {"role": "assistant", "content": "x"}, {"role": "user", "content": "r"}],
          "chosen": [{"role": "assistant", "content": "a"}], "rejected": "b"})"),
      "system: s | user: q | assistant: x | user: r | assistant: a | against "
      "system: s | user: q | assistant: x | user: r | assistant: b | after 1");
}

TEST(ReadChatPair, SaysWhatIsWrong) {
  EXPECT_THAT(PairShape(R"({"prompt": "q", "chosen": "a"})"),
              HasSubstr("rejected: wanted a text, found no such field"));
  EXPECT_THAT(PairShape(R"({"prompt": "q", "choosen": "a", "rejected": "b"})"),
              HasSubstr("chosen: wanted a text, found no such field, but choosen"));
  EXPECT_THAT(PairShape(R"({"chosen": "a", "rejected": "b"})"),
              HasSubstr("prompt: wanted it before an answer, found no such field"));
  EXPECT_THAT(PairShape(R"({"prompt": "q", "chosen": "a", "rejected": " "})"),
              HasSubstr("rejected: message 2: wanted an answer, found an empty one"));
  EXPECT_THAT(PairShape(R"({"prompt": "q", "chosen": "a", "rejected": [{"role": "tool"}]})"),
              HasSubstr("rejected[0].role: wanted system, user or assistant"));
  EXPECT_THAT(PairShape(R"({"prompt": "q", "chosen": "a", "rejected": "b", "tools": [1]})"),
              HasSubstr("tools: wanted no such field"));
  EXPECT_THAT(
      PairShape(
          R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
          "rejected": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})"),
      HasSubstr(
          "rejected: wanted the beginning of chosen up to a question, found another message 1"));
  EXPECT_THAT(PairShape("[]"), HasSubstr("wanted an object of JSON"));
}

TEST(ReadChatLine, ReadsWhatAnAssistantThought) {
  const auto read = ReadChatLine(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "thinking": "t", "reasoning_content": null, "content": "a"}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->messages[1].reasoning, "t");
  EXPECT_EQ(read->messages[1].reasoning_field, "thinking");
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "thinking": "t", "content": "q"}]})"),
              HasSubstr("messages[0].thinking: wanted one text of an assistant"));
}

TEST(ReadChatLine, RefusesBytesThatAreNoLine) {
  EXPECT_THAT(Refusal("\xEF\xBB\xBF{}"), HasSubstr("found a byte-order mark"));
  EXPECT_THAT(Refusal(absl::string_view("{\"a\": \"\0\"}", 10)), HasSubstr("byte 0 at column 8"));
  EXPECT_THAT(Refusal("{\"a\": \"\xFF\"}"), HasSubstr("wanted UTF-8"));
  EXPECT_THAT(Refusal(R"({"messages": [)"), HasSubstr("found a text that ends within a value"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("wanted an object of JSON, found one of the type array"));
  EXPECT_THAT(Refusal(std::string(kMostLineBytes + 1, ' ')),
              HasSubstr("wanted a line of at most 16777216 bytes, found 16777217"));
}

TEST(ReadChatLine, RefusesOtherForms) {
  const char* const kForms = "wanted one of messages, conversations, completion with prompt, and";
  EXPECT_THAT(Refusal(R"({"text": "t"})"), HasSubstr(kForms));
  EXPECT_THAT(Refusal(R"({"message": [], "id": 1})"), HasSubstr("found \"id\", \"message\""));
  EXPECT_THAT(Refusal("{}"), HasSubstr("found no field"));
  EXPECT_THAT(Refusal(R"({"messages": null})"), HasSubstr("found null"));
  EXPECT_THAT(Refusal(R"({"messages": [[]]})"), HasSubstr("wanted an object, found an array"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "contents": "q"}]})"),
              HasSubstr("messages[0].content: wanted a text, found no such field, but contents"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "User", "content": "q"}]})"),
              HasSubstr("found \"User\"; nearest user"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "human", "content": "q"}]})"),
              HasSubstr("the roles of conversations"));
  EXPECT_THAT(Refusal(R"({"messages": [], "segments": []})"),
              HasSubstr("found messages and segments"));
  EXPECT_THAT(Refusal(R"({"messages": []})"), HasSubstr("found an empty one"));
  EXPECT_THAT(Refusal(R"({"messages": "hello"})"), HasSubstr("found a string"));
  EXPECT_THAT(Refusal(R"({"messages": ["hello"]})"),
              HasSubstr("messages[0]: wanted an object, found a string"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user"}]})"),
              HasSubstr("messages[0].content: wanted a text, found no such field"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "tool", "content": "3"}]})"),
              HasSubstr("messages[0].role: wanted system, user or assistant, found \"tool\"; a"));
  EXPECT_THAT(Refusal(R"({"conversations": [{"from": "bing", "value": "3"}]})"),
              HasSubstr("conversations[0].from: wanted system, human or gpt, found \"bing\""));
  EXPECT_THAT(Refusal(R"({"prompt": "q"})"), HasSubstr(kForms));
  EXPECT_THAT(Refusal(R"({"completion": "a"})"), HasSubstr("prompt: wanted a text, found no such"));
}

TEST(ReadChatLine, RefusesWhatNoFormatWrites) {
  const char* const kSegments = "a program of yours can write such a conversation as segments";
  for (const char* line :
       {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]})",
        R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]})",
        R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})",
        R"({"tools": [{"type": "function"}], "messages": [{"role": "user", "content": "q"}]})"}) {
    EXPECT_THAT(Refusal(line), HasSubstr(kSegments)) << line;
  }
  EXPECT_THAT(Refusal(R"({"system": "s", "conversations": [{"from": "human", "value": "q"}]})"),
              HasSubstr("put it first among the messages"));
}

TEST(ReadChatLine, RefusesSegmentsThatTeachNothing) {
  EXPECT_THAT(Refusal(R"({"segments": [{"text": "q", "train": false}]})"),
              HasSubstr("wanted a segment with a text and train: true, found none"));
  EXPECT_THAT(Refusal(R"({"segments": [{"text": "q"}]})"),
              HasSubstr("segments[0].train: wanted true or false, found no such field"));
  EXPECT_THAT(Refusal(R"({"segments": [{"text": "q", "train": true, "role": "user"}]})"),
              HasSubstr("segments[0].role: wanted text and train alone"));
  std::string many = R"({"segments": [{"text": "q", "train": true})";
  for (size_t i = 0; i < kMostChatSegments; ++i) many += R"(, {"text": "q", "train": true})";
  EXPECT_THAT(Refusal(many + "]}"), HasSubstr("1 to 1024 segments, found 1025"));
}

std::string Turns(std::vector<ChatMessage> messages) {
  const absl::Status status = CheckTurns(messages);
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(CheckTurns, WantsAnswersByTurns) {
  const ChatMessage system = {ChatRole::kSystem, "s"}, user = {ChatRole::kUser, ""},
                    answer = {ChatRole::kAssistant, "a"}, empty = {ChatRole::kAssistant, " \n"};
  EXPECT_EQ(Turns({user, answer}), "OK");
  EXPECT_EQ(Turns({system, user, answer, user, answer}), "OK");
  EXPECT_THAT(Turns({answer, user}), HasSubstr("message 1: wanted the role user, found assistant"));
  EXPECT_THAT(Turns({user, user}), HasSubstr("message 2: wanted the role assistant, found user"));
  EXPECT_THAT(Turns({user, answer, system}),
              HasSubstr("message 3: wanted the role user, found sy"));
  EXPECT_THAT(Turns({user, answer, user}), HasSubstr("message 3: wanted an answer of the assista"));
  EXPECT_THAT(Turns({system}),
              HasSubstr("message 1: wanted an answer of the assistant at the end"));
  EXPECT_THAT(Turns({user, empty}), HasSubstr("message 2: wanted an answer, found an empty one"));
}

}  // namespace
}  // namespace trainyard
