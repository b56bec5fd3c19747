// Proves how prompts become tokens, and what was written becomes text, for jobs that know nothing
// of tokenizers.

#include "train/chat/prompts.h"

#include <gmock/gmock.h>

#include "common/files.h"
#include "tests/models/hf/files.h"
#include "tests/train/chat/golden_chat.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Prompts, AreBytesWithoutATokenizer) {
  const auto codec = OpenPromptCodec({.vocab = 256});
  ASSERT_TRUE(codec.ok()) << codec.status();
  const auto prompt = (*codec)->Encode("And");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->ids, ElementsAre('A', 'n', 'd'));
  EXPECT_FALSE(prompt->end.has_value());
  EXPECT_EQ((*codec)->Decode(prompt->ids, std::vector<int32_t>{'!', 0xe2, 0x82, 0xac, 0xff}),
            "!\xe2\x82\xac?");
  EXPECT_THAT(OpenPromptCodec({.vocab = 200}).status().ToString(), HasSubstr("256"));
}

// Bug it must catch: a model that is young draws an id without a token, and its job ends.
TEST(Prompts, ShowAnIdThatNoTokenHas) {
  const std::string path = ::testing::TempDir() + "/holes.json";
  WriteBytes(path, OpenGoldenChat("chatml").tokenizer_json);
  const auto opened = OpenTokenizer(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto codec = OpenPromptCodec({.tokenizer = path, .vocab = 1 << 20});
  ASSERT_TRUE(codec.ok()) << codec.status();
  const auto prompt = (*codec)->Encode("What is");
  const auto more = (*codec)->Encode(" this");
  ASSERT_TRUE(prompt.ok() && more.ok());
  std::vector<int32_t> written = more->ids;
  written.push_back(int32_t((*codec)->vocab()));
  written.insert(written.end(), more->ids.begin(), more->ids.end());
  EXPECT_EQ((*codec)->Decode(prompt->ids, written), " this\xef\xbf\xbd this");
}

TEST(Prompts, OfChatsAreQuestionsWithAnEnd) {
  const std::string path = ::testing::TempDir() + "/questions.json";
  WriteBytes(path, OpenGoldenChat("chatml").tokenizer_json);
  const auto codec =
      OpenPromptCodec({.tokenizer = path, .chats = true, .format = "chatml", .vocab = 2048});
  ASSERT_TRUE(codec.ok()) << codec.status();
  const auto prompt = (*codec)->Encode("Who?");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  ASSERT_TRUE(prompt->end.has_value());
  EXPECT_THAT((*codec)->Decode({}, prompt->ids), HasSubstr("Who?"));
  EXPECT_FALSE(
      OpenPromptCodec({.tokenizer = path, .chats = true, .format = "none", .vocab = 2048}).ok());
}

}  // namespace
}  // namespace trainyard::testing
