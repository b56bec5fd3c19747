// Proves that files of chats become packed samples: each chat whole and once in an epoch, targets
// in answers alone, padding at the end. And that the index beside a file is made once, and believed
// only for the same file and encoding, and that a file that cannot be trained on is refused with
// the line that is wrong.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/files.h"
#include "models/language_model.h"
#include "tests/train/chat/golden_chat.h"
#include "train/chat/chat_lines.h"
#include "train/data/chat.h"
#include "train/data/line_index.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kVocab = 2000;

class ChatFiles : public ::testing::Test {
 protected:
  ChatFiles() : directory_(::testing::TempDir() + "/chat_files") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    Write("tokenizer.json", OpenGoldenChat("chatml").tokenizer_json);
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(Path(name), std::ios::binary) << contents;
  }

  ChatData Chat(const std::string& name = "chats.jsonl") const {
    return {.path = Path(name), .tokenizer = Path("tokenizer.json"), .format = "chatml"};
  }
  absl::StatusOr<DataSplits> Open(const ChatData& source, int64_t sequence,
                                  uint64_t seed = 1) const {
    return OpenData({.source = source,
                     .inputs = TokenInputs(kVocab),
                     .sequence = sequence,
                     .seed = seed,
                     .roots = Roots({directory_}),
                     .open_lines = OpenChatLines});
  }
  static std::string IndexName(const LineEncoding& encoding) {
    return absl::StrCat("chats.jsonl.", encoding.digest().substr(0, 12), kLineIndexSuffix);
  }
  std::string Refusal(const ChatData& source, int64_t sequence) const {
    const auto opened = Open(source, sequence);
    return opened.ok() ? "" : std::string(opened.status().message());
  }

  std::shared_ptr<const LineEncoding> Encoding(const std::string& format = "chatml") const {
    auto encoding =
        OpenChatLines({.tokenizer = Path("tokenizer.json"), .format = format, .vocab = kVocab});
    CHECK(encoding.ok()) << encoding.status();
    return *encoding;
  }
  absl::StatusOr<LineIndex> Index(const LineEncoding& encoding,
                                  const std::string& name = "chats.jsonl") const {
    const auto file = InputFile::Open(Path(name));
    CHECK(file.ok()) << file.status();
    return OpenLineIndex(*file, encoding);
  }

  const std::string directory_;
};

// An answer of so many words. The question is the number.
std::string Line(int number, int words) {
  std::string answer;
  for (int i = 0; i < words; ++i) absl::StrAppend(&answer, i == 0 ? "" : " ", "the");
  return absl::StrCat(R"({"prompt": "q)", number, R"(", "completion": ")", answer, "\"}\n");
}

std::string Lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += Line(i, 1 + i * 7 % 20);
  return lines;
}

struct Sample {
  std::vector<int32_t> tokens, targets, begins;
};

Sample Read(const Dataset& data, int64_t index) {
  std::vector<InputData> out(3, InputData(std::vector<int32_t>()));
  const absl::Status status = data.Read({.index = index}, out);
  CHECK(status.ok()) << status;
  return {std::get<0>(out[0]), std::get<0>(out[1]), std::get<0>(out[2])};
}

// The chats of a sample, each as its tokens, with its last target at the end.
struct Piece {
  std::vector<int32_t> tokens, targets;
};
std::vector<Piece> PiecesOf(const Sample& sample) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    if (sample.begins[t] == int32_t(t)) pieces.emplace_back();
    pieces.back().tokens.push_back(sample.tokens[t]);
    pieces.back().targets.push_back(sample.targets[t]);
  }
  return pieces;
}

EncodedLine Encoded(const LineEncoding& encoding, const std::string& line) {
  EncodedLine encoded;
  const absl::Status status = encoding.NewEncoder()->Encode(line, encoded);
  CHECK(status.ok()) << status;
  return encoded;
}

TEST_F(ChatFiles, HaveEachChatWholeAndOnceInAnEpoch) {
  constexpr int kLines = 50, kSequence = 64;
  Write("chats.jsonl", Lines(kLines));
  const auto opened = Open(Chat(), kSequence);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto encoding = Encoding();
  std::map<std::vector<int32_t>, Piece> wanted;  // By the tokens that are inputs.
  for (int i = 0; i < kLines; ++i) {
    const EncodedLine line = Encoded(*encoding, Line(i, 1 + i * 7 % 20));
    Piece piece{{line.ids.begin(), line.ids.end() - 1}, {}};
    for (size_t t = 1; t < line.ids.size(); ++t) {
      piece.targets.push_back(line.counts[t] != 0 ? line.ids[t] : kNotCounted);
    }
    wanted[piece.tokens] = piece;
  }
  ASSERT_EQ(wanted.size(), size_t(kLines));  // The numbers differ.
  std::vector<std::vector<int32_t>> orders[2];
  int64_t sample = 0, padding = 0, samples = 0;
  for (auto& order : orders) {
    std::map<std::vector<int32_t>, int> seen;
    for (; int(seen.size()) < kLines; ++sample, ++samples) {
      const Sample read = Read(*opened->train, sample);
      ASSERT_EQ(read.tokens.size(), size_t(kSequence));
      bool padded = false;
      for (const Piece& piece : PiecesOf(read)) {
        if (piece.tokens == std::vector<int32_t>{0}) {
          EXPECT_THAT(piece.targets, ElementsAre(kNotCounted));
          padded = true;
          ++padding;
          continue;
        }
        EXPECT_FALSE(padded) << "padding is at the end";
        ASSERT_TRUE(wanted.contains(piece.tokens));
        EXPECT_EQ(piece.targets, wanted[piece.tokens].targets);
        EXPECT_EQ(++seen[piece.tokens], 1);
        order.push_back(piece.tokens);
      }
    }
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_LT(double(padding) / double(samples * kSequence), 0.15);
  EXPECT_EQ(Read(*Open(Chat(), kSequence)->train, 3).tokens, Read(*opened->train, 3).tokens);
  EXPECT_NE(Read(*Open(Chat(), kSequence, 2)->train, 3).tokens, Read(*opened->train, 3).tokens);
}

TEST_F(ChatFiles, HoldOutTheLastLines) {
  Write("chats.jsonl", Lines(20));
  ChatData source = Chat();
  source.validation_fraction = 0.25;
  const auto opened = Open(source, 64);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto encoding = Encoding();
  std::vector<std::vector<int32_t>> held_out, found;
  for (int i = 15; i < 20; ++i) {
    EncodedLine line = Encoded(*encoding, Line(i, 1 + i * 7 % 20));
    line.ids.pop_back();
    held_out.push_back(line.ids);
  }
  for (int64_t i = 0; i < opened->held_out; ++i) {
    for (const Piece& piece : PiecesOf(Read(*opened->validation, i))) {
      if (piece.tokens.size() > 1) found.push_back(piece.tokens);
    }
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(held_out));
  std::set<std::vector<int32_t>> trained;
  for (int64_t i = 0; i < 100; ++i) {
    for (const Piece& piece : PiecesOf(Read(*opened->train, i))) {
      if (piece.tokens.size() > 1) trained.insert(piece.tokens);
    }
  }
  EXPECT_EQ(trained.size(), 15u);
  for (const std::vector<int32_t>& tokens : held_out) EXPECT_FALSE(trained.contains(tokens));
  source.validation_fraction = 0.01;
  EXPECT_THAT(Refusal(source, 64), HasSubstr("validation_fraction 0.01 of 20 lines holds out"));
}

TEST_F(ChatFiles, RefuseCutOrDropWhatIsTooLong) {
  Write("chats.jsonl", Line(0, 2) + Line(1, 30) + Line(2, 3));
  const int64_t length = int64_t(Encoded(*Encoding(), Line(1, 30)).ids.size());
  ChatData source = Chat();
  EXPECT_THAT(
      Refusal(source, 24),
      AllOf(HasSubstr("wanted chats of at most batch.sequence + 1 = 25 tokens, found 1 of 3"),
            HasSubstr(absl::StrCat("batch.sequence ", length - 1, " where the model has")),
            HasSubstr(absl::StrCat("byte ", Line(0, 2).size()))));
  EXPECT_EQ(Refusal(source, length - 1), "");
  EXPECT_THAT(Refusal(source, length - 2), Not(IsEmpty()));
  for (const TooLong too_long : {TooLong::kCut, TooLong::kDrop}) {
    source.too_long = too_long;
    const auto opened = Open(source, 24);
    ASSERT_TRUE(opened.ok()) << opened.status();
    std::vector<size_t> lengths;
    for (int64_t i = 0; lengths.size() < (too_long == TooLong::kCut ? 3u : 2u); ++i) {
      for (const Piece& piece : PiecesOf(Read(*opened->train, i))) {
        if (piece.tokens.size() > 1) lengths.push_back(piece.tokens.size());
      }
    }
    EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 24u), too_long == TooLong::kCut ? 1 : 0);
  }
  // Of this one, nothing would be left that counts.
  Write("chats.jsonl", R"({"segments": [{"text": "1 2 3 4 5 6 7 8 9", "train": false}, )"
                       R"({"text": "a", "train": true}]})");
  source.too_long = TooLong::kCut;
  EXPECT_EQ(Refusal(source, 20), "");
  EXPECT_THAT(Refusal(source, 8), HasSubstr("found none in 1 lines"));
}

TEST_F(ChatFiles, LeaveOutChatsWithoutATarget) {
  // One token, which nothing predicts.
  const std::string none = R"({"segments": [{"text": "a", "train": true}]})";
  Write("chats.jsonl", none + "\n" + Line(1, 3));
  const auto opened = Open(Chat(), 64);
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (int64_t i = 0; i < 3; ++i) {
    const Sample sample = Read(*opened->train, i);
    EXPECT_EQ(std::count(sample.begins.begin(), sample.begins.end(), 0),
              int64_t(Encoded(*Encoding(), Line(1, 3)).ids.size()) - 1);
  }
  Write("none.jsonl", none);
  EXPECT_THAT(Refusal(Chat("none.jsonl"), 64), HasSubstr("found none in 1 lines"));
}

TEST_F(ChatFiles, NameTheFirstLineThatIsWrong) {
  struct Case {
    const char* line;
    const char* wanted;
  };
  for (const Case& c :
       {Case{"{\"messages\": []", "chats.jsonl:4: "},
        Case{"{\"prompt\": \"q\", \"completion\": \"\"}", "chats.jsonl:4: "},
        Case{"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", "chats.jsonl:4: "},
        Case{"\xEF\xBB\xBF{}", "chats.jsonl:4: "}}) {
    Write("chats.jsonl", Line(0, 2) + "\n \r\n" + c.line + "\n" + Line(1, 1) + "nothing\n");
    EXPECT_THAT(Refusal(Chat(), 64), HasSubstr(c.wanted)) << c.line;
  }
  Write("chats.jsonl",
        Line(0, 2) + "\n" + std::string(kMostLineBytes + 1, 'x') + "\n" + Line(1, 1));
  EXPECT_THAT(Refusal(Chat(), 64), HasSubstr("chats.jsonl:3: wanted a line of at most 16777216"));
  Write("chats.jsonl", "\n \n");
  EXPECT_THAT(Refusal(Chat(), 64), HasSubstr("wanted a line with a chat, found none"));
  EXPECT_FALSE(Exists(Path(IndexName(*Encoding()))));
}

TEST_F(ChatFiles, WantATokenizerThatTheModelHas) {
  Write("chats.jsonl", Lines(2));
  const auto opened = OpenData({.source = Chat(),
                                .inputs = TokenInputs(100),
                                .sequence = 64,
                                .roots = Roots(),
                                .open_lines = OpenChatLines});
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("vocab"));
  ChatData source = Chat();
  source.tokenizer = "/etc/hostname";
  EXPECT_EQ(Open(source, 64).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ChatFiles, AreReadOnlyAsTheyWereIndexed) {
  Write("chats.jsonl", Lines(4));
  const auto opened = Open(Chat(), 64);
  ASSERT_TRUE(opened.ok()) << opened.status();
  // Lines of as many bytes, which have other tokens.
  Write("chats.jsonl", absl::StrReplaceAll(Lines(4), {{"the", "zqx"}}));
  std::vector<InputData> out(3, InputData(std::vector<int32_t>()));
  const absl::Status read = opened->train->Read({.index = 0}, out);
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("chats.jsonl"));
}

// --- The index.

// Counts the lines that are encoded.
class CountedEncoding final : public LineEncoding {
 public:
  CountedEncoding(std::shared_ptr<const LineEncoding> encoding, std::string digest = "")
      : encoding_(std::move(encoding)), digest_(digest.empty() ? encoding_->digest() : digest) {}
  std::unique_ptr<LineEncoder> NewEncoder() const override {
    struct Counted final : LineEncoder {
      absl::Status Encode(absl::string_view line, EncodedLine& out) override {
        ++*lines;
        return encoder->Encode(line, out);
      }
      std::unique_ptr<LineEncoder> encoder;
      std::atomic<int>* lines;
    };
    auto counted = std::make_unique<Counted>();
    counted->encoder = encoding_->NewEncoder();
    counted->lines = &lines;
    return counted;
  }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return encoding_->tokenizer_path(); }
  std::string tokenizer_sha256() const override { return encoding_->tokenizer_sha256(); }

  mutable std::atomic<int> lines = 0;

 private:
  const std::shared_ptr<const LineEncoding> encoding_;
  const std::string digest_;
};

TEST_F(ChatFiles, AreEncodedOnceUntilSomethingChanges) {
  Write("chats.jsonl", Lines(9) + "\n" + Line(9, 1));
  const CountedEncoding encoding(Encoding());
  const auto first = Index(encoding);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 10u);
  EXPECT_EQ((*first)[9].offset, Lines(9).size() + 1);
  EXPECT_EQ(encoding.lines, 10);
  EXPECT_EQ(*Index(encoding), *first);
  EXPECT_EQ(encoding.lines, 10);

  const CountedEncoding other(Encoding(), std::string(64, 'f'));  // Of another digest.
  EXPECT_EQ(*Index(other), *first);
  EXPECT_EQ(other.lines, 10);
  EXPECT_EQ(*Index(encoding), *first);
  EXPECT_EQ(encoding.lines, 10) << "each encoding has an index of its own";

  // The index itself is mapped, and is about to be damaged where it lies.
  std::vector<IndexedLine> lines;
  for (size_t i = 0; i < first->size(); ++i) lines.push_back((*first)[i]);
  const std::string index = *ReadFile(Path(IndexName(encoding)));
  int encoded = encoding.lines;
  for (size_t at = 0; at < index.size(); at += 3) {  // A byte that is damaged, and a file cut off.
    for (const bool cut : {false, true}) {
      std::string damaged = index.substr(0, cut ? at : index.npos);
      if (!cut) damaged[at] = char(damaged[at] ^ 1);
      Write(IndexName(encoding), damaged);
      const LineIndex again = *Index(encoding);
      ASSERT_EQ(again.size(), lines.size()) << at;
      for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(again[i], lines[i]) << at;
      EXPECT_EQ(encoding.lines, encoded += 10) << at;
    }
  }
  Write("chats.jsonl", Lines(9) + "\n" + Line(8, 1));  // As long as before.
  EXPECT_TRUE(Index(encoding).ok());
  EXPECT_EQ(encoding.lines, encoded + 10);
}

// A file of chats may have 100 million lines.
// Bug it must catch: each rank of a host has 1.6 GB of its own for 100 million lines.
TEST_F(ChatFiles, HaveAnIndexThatRanksShare) {
  Write("chats.jsonl", Lines(9));
  const auto made = Index(*Encoding()), found = Index(*Encoding());
  for (const auto* index : {&made, &found}) {
    ASSERT_TRUE(index->ok()) << index->status();
    ASSERT_NE((*index)->mapped(), nullptr);
    EXPECT_EQ((*index)->mapped()->bytes().size(), 104 + 9 * 16u);
  }
  // Who has it open reads on although another process has made it anew since.
  std::filesystem::remove(Path(IndexName(*Encoding())));
  EXPECT_EQ((*made)[8].offset, Lines(8).size());
}

// Somebody writes into the file of the index, and its pages change with it. Bug it must catch: a
// read beyond what a line has, or a sample that is longer than it may be.
TEST_F(ChatFiles, AreNotReadBeyondWhatTheyHaveWhenTheirIndexChanges) {
  Write("chats.jsonl", Lines(3));
  ChatData source = Chat();
  source.too_long = TooLong::kCut;
  const auto opened = Open(source, 64);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<InputData> out(opened->train->inputs().size(), std::vector<int32_t>());
  ASSERT_TRUE(opened->train->Read({.index = 0}, out).ok());
  std::fstream index(Path(IndexName(*Encoding())), std::ios::binary | std::ios::in | std::ios::out);
  const uint32_t ids = 60;
  for (int line = 0; line < 3; ++line) {
    index.seekp(104 + line * 16 + 8);
    index.write(reinterpret_cast<const char*>(&ids), sizeof(ids));
  }
  index.close();
  std::vector<InputData> again(out.size(), std::vector<int32_t>());
  const absl::Status read = opened->train->Read({.index = 0}, again);
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
}

TEST_F(ChatFiles, HaveAnIndexOf16BytesALineAndOf24ForPairs) {
  Write("chats.jsonl", Lines(9));
  ASSERT_TRUE(Index(*Encoding()).ok());
  EXPECT_EQ(ReadFile(Path(IndexName(*Encoding())))->size(), 104 + 9 * 16);

  std::string pairs;
  for (int i = 0; i < 9; ++i) {
    absl::StrAppend(&pairs, R"({"prompt": "q", "chosen": "the the", "rejected": "the"})", "\n");
  }
  Write("chats.jsonl", pairs);
  const auto encoding = OpenChatLines(
      {.tokenizer = Path("tokenizer.json"), .format = "chatml", .vocab = kVocab, .pairs = true});
  ASSERT_TRUE(encoding.ok()) << encoding.status();
  const auto made = Index(**encoding);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(ReadFile(Path(IndexName(**encoding)))->size(), 104 + 9 * 24);
  const CountedEncoding counted(*encoding);
  EXPECT_EQ(*Index(counted), *made);
  EXPECT_EQ(counted.lines, 0) << "the index was not read";
  EXPECT_GT((*made)[8].rejected_ids, 0u);
}

TEST_F(ChatFiles, AreReadWhereNoIndexCanBeKept) {
  Write("chats.jsonl", Lines(3));
  ASSERT_TRUE(MakeDirectories(Path(IndexName(*Encoding()))).ok());
  const auto index = Index(*Encoding());
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->size(), 3u);
  const auto left = ListDirectory(directory_);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(*left, ::testing::Each(Not(HasSubstr(".tmp"))));
}

// Somebody else may write the directory, and lead the index to another place.
TEST_F(ChatFiles, HaveAnIndexThatFollowsNoLink) {
  Write("chats.jsonl", Lines(3));
  Write("other", "precious");
  ASSERT_EQ(::symlink(Path("other").c_str(), Path(IndexName(*Encoding())).c_str()), 0);
  ASSERT_TRUE(Index(*Encoding()).ok());
  EXPECT_EQ(*ReadFile(Path("other")), "precious");
}

// Lines of a megabyte, so that blocks end within them.
TEST_F(ChatFiles, AreCutIntoLinesAcrossBlocks) {
  std::string all;
  std::vector<uint64_t> offsets;
  for (int i = 0; i < 40; ++i) {
    offsets.push_back(all.size());
    absl::StrAppend(&all, R"({"segments": [{"text": "a", "train": true}], "x": ")",
                    std::string(size_t(600'000 + i * 7919), 'x'), "\"}",
                    i % 3 == 0 ? "\r\n" : "\n");
  }
  all.pop_back();
  Write("chats.jsonl", all);
  const auto index = Index(*Encoding());
  ASSERT_TRUE(index.ok()) << index.status();
  std::vector<uint64_t> found;
  for (size_t i = 0; i < index->size(); ++i) found.push_back(index->offset(i));
  EXPECT_EQ(found, offsets);
  const auto file = InputFile::Open(Path("chats.jsonl"));
  std::string line;
  ASSERT_TRUE(ReadLine(*file, *index, 39, line).ok());
  EXPECT_EQ(line, all.substr(offsets[39]));
}

// Ranks of one host start together.
TEST_F(ChatFiles, AreEncodedByOneProcess) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += Line(i, 20);
  Write("chats.jsonl", lines);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const CountedEncoding encoding(Encoding());
      const auto index = Index(encoding);
      ::_exit(!index.ok() || index->size() != 2000 ? 2 : encoding.lines == 2000 ? 1 : 0);
    }
    children.push_back(child);
  }
  std::vector<int> ended;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ended.push_back(WEXITSTATUS(status));
  }
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre(1, 0, 0, 0)) << "1: it has encoded all lines";
}

}  // namespace
}  // namespace trainyard
