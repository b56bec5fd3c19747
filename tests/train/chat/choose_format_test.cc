// Proves that a format is known by the text of the chat template or by its name, that no other text
// passes, and that a tokenizer without the tokens of a format is refused.

#include "train/chat/choose_format.h"

#include <gmock/gmock.h>

#include <fstream>

#include "common/files.h"
#include "tests/train/chat/golden_chat.h"
#include "train/chat/chat_encoder.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The template of ChatML, which is known in two spellings.
constexpr char kChatMl[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

class ChooseChatFormatTest : public ::testing::Test {
 protected:
  ChooseChatFormatTest() : directory_(::testing::TempDir() + "/choose_chat_format") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
  }
  void WriteConfig(const nlohmann::json& config) const {
    Write("tokenizer_config.json", config.dump());
  }
  absl::StatusOr<ChosenChatFormat> Choose(const std::string& name = "",
                                          const std::string& date = "") const {
    return ChooseChatFormat({.name = name, .date = date, .tokenizer = directory_});
  }
  std::string Chosen(const std::string& name = "", const std::string& date = "") const {
    const auto chosen = Choose(name, date);
    return chosen.ok() ? chosen->format->name : std::string(chosen.status().message());
  }

  const std::string directory_;
};

TEST_F(ChooseChatFormatTest, KnowsATemplateByItsText) {
  WriteConfig({{"chat_template", kChatMl}});
  EXPECT_EQ(Chosen(), "chatml");
  const nlohmann::json several = {{{"name", "tool_use"}, {"template", "{{ messages }}"}},
                                  {{"name", "default"}, {"template", kChatMl}}};
  WriteConfig({{"chat_template", several}});
  EXPECT_EQ(Chosen(), "chatml");
  // One line break at the end is no part of a template, and two are.
  WriteConfig({{"chat_template", std::string(kChatMl) + "\n"}});
  EXPECT_EQ(Chosen(), "chatml");
  WriteConfig({{"chat_template", std::string(kChatMl) + "\n\n"}});
  EXPECT_THAT(Chosen(), HasSubstr("found another text"));
  // A file of its own counts first.
  Write("chat_template.jinja", kChatMl);
  EXPECT_EQ(Chosen(), "chatml");
}

TEST_F(ChooseChatFormatTest, RefusesATemplateThatIsNotKnown) {
  WriteConfig({{"chat_template", std::string(kChatMl) + "{{ 'Have a nice day.' }}"}});
  EXPECT_THAT(Chosen(),
              HasSubstr("/choose_chat_format/tokenizer_config.json: wanted the chat_template "
                        "of a known format, found another text"));
  EXPECT_THAT(Chosen(), HasSubstr("chatml, llama2, llama3"));
  EXPECT_THAT(Chosen(), HasSubstr("segments: [{text, train}]"));
  EXPECT_EQ(Chosen("chatml"), "chatml");  // The user says so.
}

TEST_F(ChooseChatFormatTest, WantsATemplateOrAName) {
  EXPECT_THAT(Chosen(), HasSubstr("wanted a chat_template beside the tokenizer, found none"));
  EXPECT_THAT(Chosen("chatgpt"), HasSubstr("wanted a format of chats, one of chatml, llama2"));
  EXPECT_EQ(Choose("segments")->format, nullptr);
  Write("tokenizer_config.json", "{");
  EXPECT_THAT(Chosen(), HasSubstr("tokenizer_config.json: "));
}

TEST_F(ChooseChatFormatTest, TakesTokensFromTheTokenizersConfiguration) {
  EXPECT_EQ(Choose("llama2")->settings.begin, "<s>");
  WriteConfig({{"bos_token", {{"content", "<begin>"}}}, {"eos_token", "<end>"}});
  EXPECT_EQ(Choose("llama2")->settings.begin, "<begin>");
  EXPECT_EQ(Choose("llama2")->settings.end, "<end>");
  EXPECT_EQ(Choose("chatml")->settings.end, "");  // ChatML does not write it.
}

TEST_F(ChooseChatFormatTest, WantsADateWhereTheFormatWritesOne) {
  EXPECT_EQ(Choose("llama3.2", "2026-01-31")->settings.date, "31 Jan 2026");
  EXPECT_EQ(Choose("gpt-oss", "2026-01-31")->settings.date, "2026-01-31");
  EXPECT_THAT(Chosen("gpt-oss"),
              HasSubstr("wanted a date as 2026-01-31, which the format gpt-oss"));
  for (const char* date : {"2026-02-30", "31 Jan 2026", "2026-1-31", "2026-01-31T00"}) {
    EXPECT_THAT(Chosen("gpt-oss", date), HasSubstr("wanted a date")) << date;
  }
  EXPECT_THAT(Chosen("chatml", "2026-01-31"), HasSubstr("wanted no date in the format chatml"));
}

std::string Created(const Tokenizer& tokenizer, const char* format) {
  const ChatFormat* const found = FindChatFormat(format);
  const auto created = ChatTokenizer::Create(
      tokenizer, {.format = found, .settings = {.begin = found->begin, .end = found->end}});
  return created.ok() ? "OK" : std::string(created.status().message());
}

TEST(ChatTokenizer, WantsTheTokensOfTheFormat) {
  const GoldenChat golden = OpenGoldenChat("chatml");
  EXPECT_EQ(Created(*golden.tokenizer, "chatml"), "OK");
  EXPECT_THAT(Created(*golden.tokenizer, "llama3"), HasSubstr("wanted a tokenizer with the token"));
}

// The token is in the vocabulary, but a text with its name is only text; or white space before the
// token becomes part of it, so that it cannot be cut off.
TEST(ChatTokenizer, WantsTokensThatAreFoundInTexts) {
  auto json = nlohmann::json::parse(OpenGoldenChat("chatml").tokenizer_json);
  for (auto& token : json["added_tokens"]) {
    if (token["content"] == "<|im_end|>") token["lstrip"] = true;
  }
  const auto strips = ReadTokenizerJson(json.dump());
  ASSERT_TRUE(strips.ok()) << strips.status();
  EXPECT_THAT(Created(**strips, "chatml"), HasSubstr("finds the token \"<|im_end|>\" in a text"));
  EXPECT_THAT(Created(**strips, "chatml"), Not(HasSubstr("found none")));
}

std::string Marked(const char* format, const ChatLine& line) {
  const GoldenChat golden = OpenGoldenChat(format);
  const auto tokenizer = ChatTokenizer::Create(*golden.tokenizer, golden.chosen);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  EncodedLine encoded;
  const absl::Status status = (*tokenizer)->NewEncoder()->Encode(line, encoded);
  EXPECT_TRUE(status.ok()) << status;
  std::string marked;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const std::string text = golden.tokenizer->Decode({{encoded.ids[i]}}, Specials::kKeep).value();
    marked += encoded.counts[i] != 0 ? "[" + text + "]" : text;
  }
  return marked;
}

// "\n\n" is one token, which reaches from the header into the answer.
TEST(ChatEncoder, CountsATokenThatAnAnswerBeginsIn) {
  const ChatLine line = {.messages = {{ChatRole::kUser, "q"}, {ChatRole::kAssistant, "\na"}}};
  EXPECT_EQ(Marked("chatml", line),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant[\n\n][a][<|im_end|>]\n");
}

TEST(ChatEncoder, EncodesSegmentsAsOneText) {
  // " the" is one token, and so is " t".
  const ChatLine apart = {.segments = {{"<|im_start|> t", false}, {"he", true}, {" t", false}}};
  EXPECT_EQ(Marked("chatml", apart), "<|im_start|>[ the] t");
  const ChatLine borders = {.segments = {{"a", false}, {"", true}, {"7", true}, {"8", true}}};
  EXPECT_EQ(Marked("chatml", borders), "a[7][8]");
}

TEST(ChatEncoder, WantsSegmentsWhereThereIsNoFormat) {
  const GoldenChat golden = OpenGoldenChat("chatml");
  const auto tokenizer = ChatTokenizer::Create(*golden.tokenizer, {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encoder = (*tokenizer)->NewEncoder();
  EncodedLine encoded;
  EXPECT_TRUE(encoder->Encode({.segments = {{"a", true}}}, encoded).ok());
  const absl::Status refused =
      encoder->Encode({.messages = {{ChatRole::kUser, "q"}, {ChatRole::kAssistant, "a"}}}, encoded);
  EXPECT_THAT(refused.message(), HasSubstr("wanted segments"));
}

TEST(CheckFits, RefusesWhatAFormatWouldLose) {
  const auto fits = [](const char* format, std::vector<ChatMessage> messages) {
    return std::string(CheckFits(*FindChatFormat(format), messages).message());
  };
  const ChatMessage system = {ChatRole::kSystem, "s"}, user = {ChatRole::kUser, "q"};
  const ChatMessage answer = {ChatRole::kAssistant, "a"};
  const ChatMessage thought = {ChatRole::kAssistant, "a", "t", "thinking"};
  EXPECT_EQ(fits("chatml", {system, user, answer}), "");
  EXPECT_EQ(fits("gpt-oss", {user, thought}), "");
  EXPECT_THAT(fits("gemma", {system, user, answer}), HasSubstr("wanted no message of the system"));
  EXPECT_THAT(fits("mistral-nemo", {system, user, answer}), HasSubstr("leaves it out unless"));
  EXPECT_THAT(fits("mistral-small", {user, answer}), HasSubstr("wanted the role system"));
  EXPECT_THAT(fits("chatml", {user, thought}),
              HasSubstr("message 2: wanted no thinking in chatml"));
  EXPECT_THAT(fits("qwen3", {user, thought}), HasSubstr("writes the field reasoning_content"));
  EXPECT_THAT(fits("gpt-oss", {user, {ChatRole::kAssistant, "<|channel|>final<|message|>a"}}),
              HasSubstr("wanted no <|channel|> in an answer in gpt-oss"));
}

}  // namespace
}  // namespace trainyard
