// Proves what the program trainyard-tokenize says and how it ends: wrong usage is named, and a run
// that Ctrl-C ends does not look like one that is done.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/testing/process.h"
#include "tests/train/chat/golden_chat.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenizeProgramTest : public ::testing::Test {
 protected:
  TokenizeProgramTest() : directory_(::testing::TempDir() + "/tokenize_program") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
  }
  ~TokenizeProgramTest() override { EXPECT_TRUE(RemoveTree(directory_).ok()); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  ProcessOptions Options(std::vector<std::string> words) const {
    words.insert(words.begin(), absl::StrCat(std::getenv("TRAINYARD_BIN"), "/trainyard-tokenize"));
    return {.argv = words,
            .directory = directory_,
            .environment = {},
            .output = Path("stdout"),
            .errors = Path("stderr")};
  }
  Finished End(Process& process) const {
    Finished finished;
    finished.exit_code = process.Wait(absl::Seconds(100));
    finished.output = ReadFile(Path("stdout")).value_or("");
    finished.errors = ReadFile(Path("stderr")).value_or("");
    return finished;
  }
  Finished Run(const std::vector<std::string>& words) const {
    Process process(Options(words));
    return End(process);
  }

  const std::string directory_;
};

TEST_F(TokenizeProgramTest, AFieldWithoutLinesOfJsonIsWrongUsage) {
  Write("a.txt", "words");
  Write("b.jsonl", "{\"body\": \"words\"}\n");
  const Finished refused = Run({"--field", "body", "a.txt", "out"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--field: wanted a file NAME.jsonl, or --documents jsonl"));
  const Finished mixed = Run({"--field", "body", "a.txt", "b.jsonl", "out"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed;
  EXPECT_EQ(mixed.output, "documents=2 tokens=10 prefix=out\n");
  EXPECT_EQ(mixed.errors, "") << "it took no ten seconds";
  EXPECT_EQ(Run({"--field", "body", "--documents", "jsonl", "b.jsonl", "other"}).exit_code, 0);
}

TEST_F(TokenizeProgramTest, SaysWhichTokenizerMadeTheTokens) {
  const std::string tokenizer = OpenGoldenChat("chatml").tokenizer_json;
  Write("mine.json", tokenizer);
  Write("tokenizer_config.json", "{}");
  Write("a.txt", "words");
  EXPECT_EQ(Run({"--tokenizer", "mine.json", "a.txt", "out"}).exit_code, 0);
  EXPECT_EQ(ReadFile(Path("out.tokenizer/tokenizer.json")).value_or(""), tokenizer);
  EXPECT_EQ(ReadFile(Path("out.tokenizer/tokenizer_config.json")).value_or(""), "{}");
  EXPECT_EQ(Run({"a.txt", "bytes"}).exit_code, 0);
  EXPECT_FALSE(Exists(Path("bytes.tokenizer")));
  // One that is left of earlier files would say it of these.
  for (const char* end : {".bin", ".idx"})
    ASSERT_EQ(::unlink(Path(std::string("out") + end).c_str()), 0);
  EXPECT_THAT(
      Run({"a.txt", "out"}).errors,
      HasSubstr("out.tokenizer: wanted a prefix without files, found one; remove it first"));
}

TEST_F(TokenizeProgramTest, ChatsWantATokenizerAndAFormat) {
  Write("chats.jsonl", R"({"prompt": "q", "completion": "a"})");
  Write("tokenizer.json", OpenGoldenChat("chatml").tokenizer_json);
  const std::vector<std::string> chats = {"--documents", "chat", "chats.jsonl", "out"};
  const auto run_with = [&](std::vector<std::string> words) {
    words.insert(words.end(), chats.begin(), chats.end());
    return Run(words);
  };
  EXPECT_THAT(run_with({}).errors, HasSubstr("--documents chat: wanted --tokenizer beside it"));
  EXPECT_THAT(Run({"--format", "chatml", "chats.jsonl", "out"}).errors,
              HasSubstr("--format and --date: wanted --documents chat beside them"));
  const Finished framed = run_with({"--tokenizer", "tokenizer.json", "--begin", "<|im_start|>"});
  EXPECT_EQ(framed.exit_code, 2);
  EXPECT_THAT(framed.errors, HasSubstr("--begin and --end: wanted neither"));
  const Finished unknown = run_with({"--tokenizer", "tokenizer.json"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("wanted a chat_template beside the tokenizer"));
  const Finished made = run_with({"--tokenizer", "tokenizer.json", "--format", "chatml"});
  EXPECT_EQ(made.exit_code, 0) << made;
  EXPECT_THAT(made.output, HasSubstr("documents=1 tokens="));
}

// Bug it must catch: a script that reads the line of success takes half a corpus for a whole one.
TEST_F(TokenizeProgramTest, ARunThatASignalEndsSaysHowItGoesOn) {
  std::string paragraphs;
  while (paragraphs.size() < 1 << 20) absl::StrAppend(&paragraphs, "A line of words.\n\n");
  {
    std::ofstream text(Path("a.txt"), std::ios::binary);
    for (int i = 0; i < 96; ++i) text << paragraphs;
  }
  const std::vector<std::string> words = {"--threads", "1", "a.txt", "out"};
  Process process(Options(words));
  ASSERT_TRUE(WaitUntil([&] { return Exists(Path("out.bin.tmp")); }));
  process.Signal(SIGINT);
  const Finished stopped = End(process);
  EXPECT_EQ(stopped.exit_code, 1) << stopped;
  EXPECT_EQ(stopped.output, "");
  EXPECT_THAT(stopped.errors, AllOf(HasSubstr("stopped by a signal; "),
                                    HasSubstr(" tokens stand beside out.state. Start the same "
                                              "command again to go on\n")));
  const Finished done = Run(words);
  EXPECT_EQ(done.exit_code, 0) << done;
  EXPECT_THAT(done.output, HasSubstr(absl::StrCat(" tokens=", 96 * paragraphs.size(), " ")));
}

}  // namespace
}  // namespace trainyard::testing
