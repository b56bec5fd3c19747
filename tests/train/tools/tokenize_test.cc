// Proves that a corpus becomes the same files with any number of threads, in blocks of any size,
// and after any interruption, and that errors name the line.

#include "train/tools/tokenize.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/rng.h"
#include "tests/testing/fake_clock.h"
#include "tests/train/chat/golden_chat.h"
#include "train/data/indexed_format.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tools/corpus_progress.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizeCorpusTest : public ::testing::Test {
 protected:
  TokenizeCorpusTest() : directory_(::testing::TempDir() + "/tokenize_corpus") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& contents) const {
    std::ofstream(Path(name), std::ios::binary) << contents;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    return ReadFile(Path(name)).value_or("no file " + name);
  }

  CorpusOptions Options(const std::string& input, const std::string& prefix) const {
    return {.inputs = {input}, .prefix = Path(prefix)};
  }
  static absl::StatusOr<TokenizedCorpus> Run(const CorpusOptions& options) {
    return TokenizeCorpus(ByteTokenizer(), options);
  }

  // The lengths of the documents.
  std::vector<int32_t> Lengths(const std::string& prefix, const TokenizedCorpus& corpus) const {
    const std::string index = Read(prefix + ".idx");
    std::vector<int32_t> lengths(size_t(corpus.documents));
    EXPECT_GE(index.size(), kIndexHeaderBytes + 4 * lengths.size());
    std::memcpy(lengths.data(), index.data() + kIndexHeaderBytes, 4 * lengths.size());
    return lengths;
  }

  // Paragraphs of random lengths, between which stand one to three blank lines.
  static std::string Paragraphs(uint64_t seed, size_t count) {
    std::string text = "\n \n";
    for (size_t i = 0; i < count; ++i) {
      for (size_t lines = RandomBits(seed, 1, i) % 4 + 1; lines > 0; --lines) {
        absl::StrAppend(&text, std::string(RandomBits(seed, 2, i + lines) % 60 + 1, 'a'), "\n");
      }
      for (size_t blank = RandomBits(seed, 3, i) % 3 + 1; blank > 0; --blank) {
        text += blank == 2 ? " \t\n" : "\n";
      }
    }
    return text + "no line break at the end";
  }

  const std::string directory_;
};

TEST_F(TokenizeCorpusTest, FilesDoNotDependOnThreadsOrBlocks) {
  const std::string text = Paragraphs(7, 400);
  const std::string input = Write("text.txt", text);
  auto whole = Options(input, "whole");
  whole.block_bytes = 1 << 24;
  const auto wanted = Run(whole);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->documents, 401);
  EXPECT_EQ(wanted->tokens, int64_t(text.size()));
  for (const int threads : {1, 3}) {
    for (const size_t block : {1u, 7u, 100u, 5000u}) {
      const std::string name = absl::StrCat("blocks_", threads, "_", block);
      auto options = Options(input, name);
      options.threads = threads;
      options.block_bytes = block;
      options.sync_bytes = 3000;
      const auto corpus = Run(options);
      ASSERT_TRUE(corpus.ok()) << corpus.status();
      EXPECT_TRUE(Read(name + ".bin") == Read("whole.bin")) << name;
      EXPECT_TRUE(Read(name + ".idx") == Read("whole.idx")) << name;
      EXPECT_FALSE(Exists(Path(name + ".state"))) << name;
      EXPECT_FALSE(Exists(Path(name + ".len.tmp"))) << name;
    }
  }
}

TEST_F(TokenizeCorpusTest, AnInterruptedRunGoesOnAndLeavesTheSameFiles) {
  const std::vector<std::string> inputs = {Write("a.txt", Paragraphs(1, 200)),
                                           Write("b.txt", Paragraphs(2, 200))};
  CorpusOptions options{.inputs = inputs, .prefix = Path("whole")};
  ASSERT_TRUE(Run(options).ok());
  options.prefix = Path("parts");
  options.block_bytes = 500;
  options.sync_bytes = 2000;
  options.threads = 2;
  std::string earlier_state;
  int runs = 0;
  for (bool finished = false; !finished; ++runs) {
    ASSERT_LT(runs, 200);
    int blocks = 0;
    const auto corpus = TokenizeCorpus(ByteTokenizer(), options, [&] { return ++blocks == 5; });
    ASSERT_TRUE(corpus.ok()) << corpus.status();
    finished = corpus->finished;
    EXPECT_EQ(Exists(Path("parts.idx")), finished);
    // Every third time, the process is killed before its state is on disk: the temporary files
    // then have more than the state says.
    if (!finished && runs % 3 == 2) {
      Write("parts.state", earlier_state);
    } else if (!finished) {
      earlier_state = Read("parts.state");
    }
  }
  EXPECT_GT(runs, 10);
  EXPECT_TRUE(Read("parts.bin") == Read("whole.bin"));
  EXPECT_TRUE(Read("parts.idx") == Read("whole.idx"));
  EXPECT_FALSE(Exists(Path("parts.state")));
}

TEST_F(TokenizeCorpusTest, ARunThatEndedWithinItsLastStepGoesOn) {
  const std::string input = Write("text.txt", Paragraphs(3, 50));
  ASSERT_TRUE(Run(Options(input, "whole")).ok());
  auto options = Options(input, "parts");
  options.block_bytes = 100;
  int blocks = 0;
  ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [&] { return ++blocks == 9; }).ok());
  // PREFIX.bin is there, and PREFIX.idx is not.
  std::filesystem::rename(Path("parts.bin.tmp"), Path("parts.bin"));
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_TRUE(Read("parts.bin") == Read("whole.bin"));
  EXPECT_TRUE(Read("parts.idx") == Read("whole.idx"));
}

TEST_F(TokenizeCorpusTest, OtherInputsOrOptionsDoNotGoOn) {
  const std::string input = Write("text.txt", Paragraphs(4, 50));
  auto options = Options(input, "parts");
  options.block_bytes = 100;
  int blocks = 0;
  ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [&] { return ++blocks == 3; }).ok());
  auto other = options;
  other.tokenizer = "another";
  EXPECT_THAT(Run(other).status().message(),
              AllOf(HasSubstr("parts.state"), HasSubstr("remove the file to begin anew")));
  other = options;
  other.after = "a";
  EXPECT_EQ(Run(other).status().code(), absl::StatusCode::kFailedPrecondition);
  Write("parts.state", "{\"version\": 1}");
  EXPECT_EQ(Run(options).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TokenizeCorpusTest, LinesOfJsonHaveTheTextInAField) {
  const std::string input = Write("in.jsonl",
                                  "{\"text\": \"one\\ntwo\", \"id\": 1}\n"
                                  "\n"
                                  "{\"text\": \"\"}\r\n"
                                  "{\"text\": \"\\u00e9\"}");
  auto options = Options(input, "out");
  options.split = DocumentSplit::kJsonLines;
  options.before = "<";
  options.after = ">";
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(9, 4));
  EXPECT_EQ(Read("out.bin"), std::string("<\0o\0n\0e\0\n\0t\0w\0o\0>\0<\0\xC3\0\xA9\0>\0", 26));
}

TEST_F(TokenizeCorpusTest, ErrorsNameTheFileAndTheLine) {
  std::string lines;
  for (int i = 1; i < 300; ++i) lines += "{\"text\": \"a\"}\n";
  const std::string input = Write("in.jsonl", lines + "{\"words\": 1}\n");
  auto options = Options(input, "out");
  options.split = DocumentSplit::kJsonLines;
  options.block_bytes = 100;
  options.threads = 3;
  EXPECT_THAT(Run(options).status().message(),
              HasSubstr("in.jsonl:300: wanted a text in the field text, found no such field"));
  options.field = "words";
  options.prefix = Path("other");
  EXPECT_THAT(Run(options).status().message(), HasSubstr("in.jsonl:1: wanted"));
  options.inputs = {Write("bad.jsonl", "nonsense\n")};
  options.prefix = Path("third");
  EXPECT_THAT(Run(options).status().message(),
              HasSubstr("bad.jsonl:1: wanted JSON, found something else"));
  options.after = "no such token";
  EXPECT_THAT(Run(options).status().message(), HasSubstr("\"no such token\""));
}

TEST_F(TokenizeCorpusTest, NumbersThatAreNotFiniteAndMalformedBytesEndNoRun) {
  auto options = Options(Write("in.jsonl",
                               "{\"text\": \"a\", \"score\": NaN}\n"
                               "{\"text\": \"b\xFF\", \"score\": -Infinity}\n"),
                         "out");
  options.split = DocumentSplit::kJsonLines;
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(1, 4));
  EXPECT_EQ(Read("out.bin"), std::string("a\0b\0\xEF\0\xBF\0\xBD\0", 10));
}

TEST_F(TokenizeCorpusTest, ALineThatIsNoJsonIsRefusedWithWhatWasFound) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"text": "a\ud83d"})", "wanted JSON, found something else"},
      {R"({"text": "a", "id": 1e999})", "wanted JSON, found a number that is too large"},
      {R"({"text": "a")", "wanted JSON, found a text that ends within a value"},
      {R"(["text"])", "wanted an object of JSON, found one of the type array"}};
  int number = 0;
  for (const auto& [line, message] : refused) {
    const std::string name = absl::StrCat("in", ++number, ".jsonl");
    auto options =
        Options(Write(name, absl::StrCat("{\"text\": \"b\"}\n", line, "\n")), name + ".out");
    options.split = DocumentSplit::kJsonLines;
    EXPECT_THAT(Run(options).status().message(), HasSubstr(absl::StrCat(name, ":2: ", message)));
    EXPECT_THAT(Run(options).status().message(), Not(HasSubstr("in line")));
  }
}

// With blocks of equal size, the end of the document would be looked for in 10^13 bytes.
TEST_F(TokenizeCorpusTest, ADocumentOfManyBlocksIsReadInLinearTime) {
  auto options = Options(Write("in.txt", std::string(4 << 20, 'a') + "\n\nb"), "out");
  options.block_bytes = 1;
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre((4 << 20) + 2, 1));
}

TEST_F(TokenizeCorpusTest, ASecondRunOnAPrefixIsRefused) {
  const std::string input = Write("text.txt", Paragraphs(5, 50));
  ASSERT_TRUE(Run(Options(input, "whole")).ok());
  auto options = Options(input, "out");
  options.block_bytes = 100;
  options.sync_bytes = 300;
  int blocks = 0;
  const auto corpus = TokenizeCorpus(ByteTokenizer(), options, [&] {
    if (++blocks % 5 != 2) return false;
    const auto second = Run(options);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
    EXPECT_THAT(second.status().message(), AllOf(HasSubstr("out.lock"), HasSubstr("another run")));
    return false;
  });
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_GT(blocks, 10);
  EXPECT_TRUE(Read("out.bin") == Read("whole.bin"));
  EXPECT_TRUE(Read("out.idx") == Read("whole.idx"));
  EXPECT_FALSE(Exists(Path("out.lock")));
}

TEST_F(TokenizeCorpusTest, ARunThatEndedBeforeItsStateWasRemovedIsFinished) {
  auto options = Options(Write("text.txt", Paragraphs(6, 50)), "out");
  ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [] { return true; }).ok());
  const std::string state = Read("out.state");
  const auto finished = Run(options);
  ASSERT_TRUE(finished.ok()) << finished.status();
  const std::string index = Read("out.idx");
  Write("out.state", state);
  Write("out.len.tmp", "");
  const auto again = Run(options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->finished);
  EXPECT_EQ(again->documents, finished->documents);
  EXPECT_EQ(again->tokens, finished->tokens);
  EXPECT_TRUE(Read("out.idx") == index);
  EXPECT_FALSE(Exists(Path("out.state")));
  EXPECT_FALSE(Exists(Path("out.len.tmp")));
}

TEST_F(TokenizeCorpusTest, StatesAreAsManyAsTheBytesThatWereReadAskFor) {
  CorpusOptions options{.prefix = Path("out")};
  for (int i = 0; i < 5; ++i) options.inputs.push_back(Write(absl::StrCat(i, ".txt"), "a"));
  options.sync_bytes = 100;
  bool saved = false;
  const auto corpus = TokenizeCorpus(ByteTokenizer(), options, [&] {
    saved |= Exists(Path("out.state"));
    return false;
  });
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_FALSE(saved);
}

TEST_F(TokenizeCorpusTest, AFieldMayHaveAnyBytes) {
  auto options = Options(Write("in.jsonl", "{\"text\": \"a\"}\n"), "out");
  options.split = DocumentSplit::kJsonLines;
  options.field = "\xFF";
  EXPECT_THAT(Run(options).status().message(), HasSubstr("in.jsonl:1: wanted a text"));
  options.field = "text";
  ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [] { return true; }).ok());
  options.field = "\xFF";
  EXPECT_EQ(Run(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenizeCorpusTest, ALineOfChatsIsWrittenInTheFormat) {
  const GoldenChat golden = OpenGoldenChat("chatml");
  const auto chat = ChatTokenizer::Create(*golden.tokenizer, golden.chosen);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const std::string lines = R"({"prompt": "q", "completion": "a"})"
                            "\n\n"
                            R"({"segments": [{"text": "<|im_end|>", "train": true}]})"
                            "\n";
  auto options = Options(Write("in.jsonl", lines), "out");
  options.split = DocumentSplit::kChat;
  options.chat = chat->get();
  const auto corpus = TokenizeCorpus(*golden.tokenizer, options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  std::vector<int32_t> ids;
  const auto encoder = golden.tokenizer->NewEncoder();
  ASSERT_TRUE(encoder
                  ->Encode("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
                           "<|im_end|>",
                           ids)
                  .ok());
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(int32_t(ids.size()) - 1, 1));
  std::vector<uint16_t> tokens(ids.size());
  const std::string bytes = Read("out.bin");
  ASSERT_EQ(bytes.size(), 2 * tokens.size());
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.end()), ids);

  options = Options(Write("bad.jsonl", lines + R"({"prompt": "q", "completion": ""})"), "bad");
  options.split = DocumentSplit::kChat;
  options.chat = chat->get();
  EXPECT_THAT(TokenizeCorpus(*golden.tokenizer, options).status().message(),
              HasSubstr("bad.jsonl:4: message 2: wanted an answer, found an empty one"));

  // Another format is another corpus.
  options.inputs = {Path("in.jsonl")};
  options.prefix = Path("stopped");
  ASSERT_TRUE(TokenizeCorpus(*golden.tokenizer, options, [] { return true; }).ok());
  const auto segments = ChatTokenizer::Create(*golden.tokenizer, {});
  options.chat = segments->get();
  EXPECT_EQ(TokenizeCorpus(*golden.tokenizer, options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenizeCorpusTest, ALineIsADocumentWithoutItsEnd) {
  auto options = Options(Write("in.txt", "a\n\n bc \r\nd"), "out");
  options.split = DocumentSplit::kLine;
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(1, 4, 1));
}

// Bug it must catch: after a text file, lines of JSON become text with all their braces.
TEST_F(TokenizeCorpusTest, TheFormOfEachFileIsThatOfItsName) {
  CorpusOptions options{
      .inputs = {Write("a.txt", "one\n\ntwo"), Write("b.jsonl", "{\"text\": \"three\"}\n"),
                 Write("c.txt", "{}")},
      .prefix = Path("out")};
  options.block_bytes = 2;
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(5, 3, 5, 2));
}

TEST_F(TokenizeCorpusTest, AnInputThatIsThereTwiceIsRefused) {
  const std::string input = Write("a.txt", "one");
  std::filesystem::create_symlink(input, Path("link.txt"));
  CorpusOptions options{.inputs = {input, Write("b.txt", "one"), input}, .prefix = Path("out")};
  EXPECT_THAT(
      Run(options).status().message(),
      HasSubstr("a.txt: wanted each input once, found the same file before; to train more"));
  options.inputs = {Path("link.txt"), input};
  EXPECT_THAT(Run(options).status().message(), HasSubstr("before, as " + Path("link.txt") + ";"));
}

TEST_F(TokenizeCorpusTest, WithoutItsTemporaryFilesARunSaysHowToBeginAnew) {
  for (const char* gone : {".bin.tmp", ".len.tmp"}) {
    SCOPED_TRACE(gone);
    auto options = Options(Write("text.txt", Paragraphs(8, 50)), absl::StrCat("out", gone));
    options.block_bytes = 100;
    int blocks = 0;
    ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [&] { return ++blocks == 5; }).ok());
    std::filesystem::remove(options.prefix + gone);
    EXPECT_THAT(Run(options).status().message(),
                AllOf(HasSubstr(options.prefix + gone),
                      HasSubstr("remove " + options.prefix + ".state to begin anew")));
    std::filesystem::remove(options.prefix + ".state");
    EXPECT_TRUE(Run(options).ok()) << "as the message says";
  }
}

TEST_F(TokenizeCorpusTest, ProgressCountsWhatEarlierRunsHaveDone) {
  CorpusOptions options{.inputs = {Write("a.txt", "one\n\n"), Write("b.txt", "two\n\nthree")},
                        .prefix = Path("out")};
  options.block_bytes = 5;
  std::vector<int64_t> bytes, tokens;
  options.progress = [&](const CorpusProgress& progress) {
    EXPECT_EQ(progress.all_bytes, 15);
    bytes.push_back(progress.bytes);
    tokens.push_back(progress.tokens);
  };
  int blocks = 0;
  ASSERT_TRUE(TokenizeCorpus(ByteTokenizer(), options, [&] { return ++blocks == 1; }).ok());
  ASSERT_TRUE(Run(options).ok());
  EXPECT_THAT(bytes, ElementsAre(0, 5, 5, 15));
  EXPECT_EQ(tokens, bytes);
}

TEST(CorpusProgress, IsALineInPlaceOnATerminalAndOneNowAndThenElsewhere) {
  FakeClock clock;
  std::ostringstream terminal, elsewhere;
  CorpusProgressPrinter shown(clock, terminal, true), logged(clock, elsewhere, false);
  for (int64_t i = 0; i <= 210; ++i) {
    const CorpusProgress progress{(100 + i) << 20, 1000 << 20, i, 3 * i};
    shown.Show(progress);
    logged.Show(progress);
    clock.Advance(absl::Milliseconds(100));
  }
  shown.End();
  logged.End();
  EXPECT_EQ(elsewhere.str(),
            "20% of 1000.0 MiB  100 documents  300 tokens  10.0 MiB/s  1m20s left\n"
            "30% of 1000.0 MiB  200 documents  600 tokens  10.0 MiB/s  1m10s left\n");
  EXPECT_THAT(terminal.str(),
              HasSubstr("\r\x1b[K10% of 1000.0 MiB  2 documents  6 tokens  10.0 MiB/s  "
                        "1m30s left\r\x1b[K10% of"));
  EXPECT_THAT(terminal.str(), ::testing::EndsWith("left\r\x1b[K"));
  EXPECT_THAT(terminal.str(), Not(HasSubstr("\n")));
}

TEST_F(TokenizeCorpusTest, EveryFileIsADocumentIfTheUserSaysSo) {
  CorpusOptions options{
      .inputs = {Write("1.txt", "a\n\nb"), Write("2.txt", ""), Write("3.txt", "ccc")},
      .prefix = Path("out"),
      .split = DocumentSplit::kFile};
  options.block_bytes = 2;
  const auto corpus = Run(options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(Lengths("out", *corpus), ElementsAre(4, 3));
}

}  // namespace
}  // namespace trainyard
