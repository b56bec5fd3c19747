// Proves that text and Megatron files are read token by token as their formats say, from bytes
// written here by hand, and that every kind of damage is an error that names the file.

#include "common/files.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "models/language_model.h"
#include "train/data/dataset.h"
#include "train/data/indexed.h"
#include "train/data/text.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tools/indexed_writer.h"
#include "train/tools/tokenize.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<TokenizedCorpus> TokenizeBytes(const std::string& text_path,
                                              const std::string& prefix, DocumentSplit split) {
  return TokenizeCorpus(ByteTokenizer(), {.inputs = {text_path}, .prefix = prefix, .split = split});
}

class DataFiles : public ::testing::Test {
 protected:
  DataFiles() : directory_(::testing::TempDir() + "/data_files") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(Path(name), std::ios::binary) << contents;
  }

  absl::StatusOr<DataSplits> Text(const std::string& name, double fraction,
                                  int64_t sequence) const {
    return OpenData({.source = TextData{name, fraction},
                     .inputs = TokenInputs(256),
                     .sequence = sequence,
                     .roots = Roots({directory_})});
  }
  absl::StatusOr<DataSplits> Indexed(const std::string& name, double fraction, int64_t sequence,
                                     int64_t vocab = 65536, bool documents = false) const {
    return OpenData({.source = IndexedData{name, fraction, documents, documents},
                     .inputs = TokenInputs(vocab),
                     .sequence = sequence,
                     .roots = Roots({directory_})});
  }

  const std::string directory_;
};

// The tokens of a sample, and the last target.
absl::StatusOr<std::vector<int32_t>> ReadOneSample(const Dataset& data, int64_t index) {
  std::vector<InputData> inputs(2, std::vector<int32_t>());
  RETURN_IF_ERROR(data.Read({.index = index, .epoch = 7}, inputs));
  std::vector<int32_t> tokens = std::get<std::vector<int32_t>>(inputs[0]);
  const auto& targets = std::get<std::vector<int32_t>>(inputs[1]);
  tokens.push_back(targets.back());
  EXPECT_TRUE(std::equal(targets.begin(), targets.end(), tokens.begin() + 1, tokens.end()));
  return tokens;
}

std::vector<int32_t> Sample(const Dataset& data, int64_t index) {
  const auto tokens = ReadOneSample(data, index);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.value_or(std::vector<int32_t>());
}

template <typename T>
std::string Bytes(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), std::data(values), out.size());
  return out;
}

// Two documents, the second of two sequences, which lie in the file the wrong way round, with a
// gap.
template <typename T>
void WritePair(const std::string& prefix, uint8_t dtype) {
  const int64_t size = sizeof(T);
  const std::string index = std::string("MMIDIDX\0\0", 9) + Bytes<uint64_t>({1}) +
                            Bytes<uint8_t>({dtype}) + Bytes<uint64_t>({3, 3}) +
                            Bytes<int32_t>({3, 2, 4}) + Bytes<int64_t>({0, 8 * size, 4 * size}) +
                            Bytes<int64_t>({0, 1, 3});
  ASSERT_TRUE(WriteFileAtomic(prefix + ".idx", index).ok());
  ASSERT_TRUE(
      WriteFileAtomic(prefix + ".bin", Bytes<T>({1, 2, 3, 99, 60, 70, 80, 90, 40, 50})).ok());
}

TEST_F(DataFiles, TextIsCutIntoOverlappingSamplesWithItsEndHeldOut) {
  Write("t", "abcdefghijklmnopqrst");
  const auto splits = Text("t", 0.25, 4);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->num_samples(), 3);
  EXPECT_THAT(Sample(*splits->train, 0), ElementsAre('a', 'b', 'c', 'd', 'e'));
  EXPECT_THAT(Sample(*splits->train, 2), ElementsAre('i', 'j', 'k', 'l', 'm'));
  EXPECT_EQ(splits->validation->num_samples(), 1);
  EXPECT_THAT(Sample(*splits->validation, 0), ElementsAre('p', 'q', 'r', 's', 't'));
}

// Each byte of this text occurs once, so that a shared token would be seen.
TEST_F(DataFiles, TrainingAndValidationShareNoToken) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += char(i);
  Write("t", text);
  for (const double fraction : {0.1, 0.3, 0.49}) {
    for (int64_t sequence = 1; sequence < 20; ++sequence) {
      const auto splits = Text("t", fraction, sequence);
      ASSERT_TRUE(splits.ok()) << splits.status();
      std::set<int32_t> train;
      for (int64_t i = 0; i < splits->train->num_samples(); ++i) {
        for (const int32_t token : Sample(*splits->train, i)) train.insert(token);
      }
      for (int64_t i = 0; i < splits->validation->num_samples(); ++i) {
        for (const int32_t token : Sample(*splits->validation, i))
          EXPECT_EQ(train.count(token), 0u);
      }
    }
  }
}

TEST_F(DataFiles, TextThatIsMissingOrTooShortIsNamed) {
  EXPECT_EQ(Text("none", 0, 4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Text("none", 0, 4).status().message()), HasSubstr("none"));
  EXPECT_EQ(Text("/etc/passwd", 0, 4).status().code(), absl::StatusCode::kPermissionDenied);
  Write("t", "abcdefghij");
  EXPECT_TRUE(Text("t", 0, 9).ok());
  EXPECT_EQ(Text("t", 0, 9)->validation, nullptr);
  EXPECT_THAT(std::string(Text("t", 0, 10).status().message()),
              HasSubstr("t: wanted at least sequence + 1 = 11 tokens to train on, found 10"));
  EXPECT_THAT(
      std::string(Text("t", 0.3, 3).status().message()),
      HasSubstr("wanted at least sequence + 1 = 4 tokens held out for validation, found 3"));
  EXPECT_THAT(std::string(Text("t", 0.01, 3).status().message()), HasSubstr("holds out nothing"));
  Write("empty", "");
  EXPECT_FALSE(Text("empty", 0, 1).ok());
}

TEST_F(DataFiles, TextThatShrinksWhileReadIsDataLoss) {
  Write("t", std::string(100, 'x'));
  const auto splits = Text("t", 0, 9);
  std::filesystem::resize_file(Path("t"), 50);
  EXPECT_TRUE(ReadOneSample(*splits->train, 0).ok());
  const absl::Status status = ReadOneSample(*splits->train, 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t ends before byte 100"));
}

TEST_F(DataFiles, IndexedReadsEveryIntegerTypeAndFollowsTheOffsets) {
  WritePair<uint8_t>(Path("u8"), 1);
  WritePair<int8_t>(Path("i8"), 2);
  WritePair<int16_t>(Path("i16"), 3);
  WritePair<int32_t>(Path("i32"), 4);
  WritePair<int64_t>(Path("i64"), 5);
  WritePair<uint16_t>(Path("u16"), 8);
  for (const char* name : {"u8", "i8", "i16", "i32", "i64", "u16"}) {
    SCOPED_TRACE(name);
    const auto all = Indexed(name, 0, 8);
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->train->num_samples(), 1);
    EXPECT_EQ(all->validation, nullptr);
    EXPECT_THAT(Sample(*all->train, 0), ElementsAre(1, 2, 3, 40, 50, 60, 70, 80, 90));
    // One of two documents held out.
    const auto half = Indexed(name, 0.4, 2);
    ASSERT_TRUE(half.ok()) << half.status();
    EXPECT_EQ(half->train->num_samples(), 1);
    EXPECT_THAT(Sample(*half->train, 0), ElementsAre(1, 2, 3));
    EXPECT_EQ(half->validation->num_samples(), 2);
    EXPECT_THAT(Sample(*half->validation, 0), ElementsAre(40, 50, 60));
    EXPECT_THAT(Sample(*half->validation, 1), ElementsAre(60, 70, 80));
  }
}

// Where each document of a sample's input tokens begins, as read.
std::vector<int32_t> Begins(const Dataset& data, int64_t index) {
  std::vector<InputData> inputs(3, std::vector<int32_t>());
  const absl::Status status = data.Read({.index = index}, inputs);
  EXPECT_TRUE(status.ok()) << status;
  return std::get<std::vector<int32_t>>(inputs[2]);
}

std::vector<int32_t> Targets(const Dataset& data, int64_t index) {
  std::vector<InputData> inputs(3, std::vector<int32_t>());
  const absl::Status status = data.Read({.index = index}, inputs);
  EXPECT_TRUE(status.ok()) << status;
  return std::get<std::vector<int32_t>>(inputs[1]);
}

// The same from each token's document, counted row by row.
std::vector<int32_t> ScannedBegins(const std::vector<int32_t>& document_of, int64_t first,
                                   int64_t sequence) {
  std::vector<int32_t> begins;
  for (int64_t row = 0; row < sequence; ++row) {
    int64_t begin = row;
    while (begin > 0 && document_of[size_t(first + begin - 1)] == document_of[size_t(first + row)])
      --begin;
    begins.push_back(int32_t(begin));
  }
  return begins;
}

// All tokens are 'x'. A target that lies in another document than its token is not counted.
std::vector<int32_t> ScannedTargets(const std::vector<int32_t>& document_of, int64_t first,
                                    int64_t sequence) {
  std::vector<int32_t> targets;
  for (int64_t at = first; at < first + sequence; ++at) {
    targets.push_back(document_of[size_t(at)] == document_of[size_t(at + 1)] ? 'x' : kNotCounted);
  }
  return targets;
}

// Documents longer than a sample, of one token, of several sequences, without tokens at the edges
// of samples and elsewhere, and documents that begin at a sample's first row.
TEST_F(DataFiles, IndexedTellsWhereDocumentsBegin) {
  const std::vector<std::vector<int32_t>> documents = {
      {},  {3},    {1},    {1}, {2, 0, 2}, {0},   {},  {3}, {4, 13}, {1}, {0, 0}, {4},
      {4}, {2, 2}, {1, 1}, {},  {9},       {300}, {1}, {1}, {},      {5}, {}};
  std::string lengths, offsets, boundaries = Bytes<int64_t>({0}), tokens;
  std::vector<int32_t> document_of;
  int64_t sequences = 0;
  for (const std::vector<int32_t>& document : documents) {
    for (const int32_t length : document) {
      lengths += Bytes<int32_t>({length});
      offsets += Bytes<int64_t>({int64_t(tokens.size())});
      tokens.append(size_t(length), 'x');
      document_of.insert(document_of.end(), size_t(length), int32_t(boundaries.size()));
      ++sequences;
    }
    boundaries += Bytes<int64_t>({sequences});
  }
  Write("d.bin", tokens);
  Write("d.idx", std::string("MMIDIDX\0\0", 9) + Bytes<uint64_t>({1}) + Bytes<uint8_t>({1}) +
                     Bytes<uint64_t>({uint64_t(sequences), documents.size() + 1}) + lengths +
                     offsets + boundaries);
  for (int64_t sequence = 1; sequence < 40; ++sequence) {
    const auto splits = Indexed("d", 0.3, sequence, 256, /*documents=*/true);
    if (!splits.ok()) continue;
    const int64_t split = int64_t(tokens.size()) - 307;  // The last six documents are held out.
    for (const auto& [data, first] :
         {std::pair(splits->train.get(), int64_t{0}), std::pair(splits->validation.get(), split)}) {
      for (int64_t i = 0; i < data->num_samples(); ++i) {
        const std::string of = absl::StrCat("sample ", i, " of ", sequence, " tokens");
        const int64_t begin = first + i * sequence;
        ASSERT_EQ(Begins(*data, i), ScannedBegins(document_of, begin, sequence)) << of;
        ASSERT_EQ(Targets(*data, i), ScannedTargets(document_of, begin, sequence)) << of;
      }
    }
  }
  const auto splits = Indexed("d", 0, 4, 256, /*documents=*/true);
  EXPECT_THAT(Begins(*splits->train, 0), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(Begins(*splits->train, 1), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(Begins(*splits->train, 2), ElementsAre(0, 1, 1, 1));
  ASSERT_EQ(splits->train->inputs().size(), 3u);
  EXPECT_EQ(splits->train->inputs()[2], DocumentBegins(4));
}

TEST_F(DataFiles, AFractionOfOneDocumentIsRefusedByItsCause) {
  auto writer = IndexedWriter::Create(Path("one"), IndexDType::kUint16);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->AddDocument(std::vector<int32_t>(100, 1)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(Indexed("one", 0, 8).ok());
  EXPECT_THAT(std::string(Indexed("one", 0.1, 8).status().message()),
              HasSubstr("one.idx: validation_fraction 0.1 holds out 1 of 1 documents"));
}

TEST_F(DataFiles, IndexedNamesTokensOutsideOfTheVocabulary) {
  WritePair<uint16_t>(Path("p"), 8);
  EXPECT_TRUE(Indexed("p", 0, 8, 91).ok());
  const auto splits = Indexed("p", 0, 8, 90);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const absl::Status status = ReadOneSample(*splits->train, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("p.bin: token 90 at byte 14 (sequence 2), wanted 0 to 89"));
}

TEST_F(DataFiles, IndexedSignedNegativeTokensAreOutsideOfEveryVocabulary) {
  WritePair<int16_t>(Path("p"), 3);
  std::string tokens = ReadFile(Path("p.bin")).value();
  tokens[1] = char(0x80);
  Write("p.bin", tokens);
  EXPECT_THAT(std::string(ReadOneSample(*Indexed("p", 0, 8)->train, 0).status().message()),
              HasSubstr("token -32767 at byte 0"));
}

struct Damage {
  const char* what;
  size_t at;
  std::string bytes;  // Written over the index at `at`.
  const char* message;
};

TEST_F(DataFiles, IndexedNamesEveryKindOfDamage) {
  WritePair<uint16_t>(Path("good"), 8);
  const std::string index = ReadFile(Path("good.idx")).value(),
                    tokens = ReadFile(Path("good.bin")).value();
  const size_t lengths = 34, offsets = lengths + 12, documents = offsets + 24;
  const int64_t huge = int64_t{1} << 62;
  for (const Damage& damage :
       {Damage{"magic", 0, "X", "not a Megatron index"},
        Damage{"version", 9, Bytes<uint64_t>({2}), "version 1, found 2"},
        Damage{"dtype 0", 17, Bytes<uint8_t>({0}), "integer dtype code"},
        Damage{"float32", 17, Bytes<uint8_t>({7}), "integer dtype code"},
        Damage{"dtype 9", 17, Bytes<uint8_t>({9}), "integer dtype code"},
        Damage{"sequences", 18, Bytes<uint64_t>({4}), "does not fit 4 sequences"},
        Damage{"huge sequences", 18, Bytes<uint64_t>({~uint64_t{0} / 12 + 1}), "does not fit"},
        Damage{"huge documents", 26, Bytes<uint64_t>({~uint64_t{0}}), "does not fit"},
        Damage{"negative length", lengths, Bytes<int32_t>({-1}), "sequence 0 has the length -1"},
        Damage{"huge length", lengths, Bytes<int32_t>({0x7fffffff}),
               "sequence 0 (2147483647 tokens at byte 0)"},
        Damage{"negative offset", offsets, Bytes<int64_t>({-8}), "ends beyond the file's 20 bytes"},
        Damage{"huge offset", offsets + 8, Bytes<int64_t>({huge}), "sequence 1 (2 tokens"},
        Damage{"largest offset", offsets, Bytes<int64_t>({0x7fffffffffffffff}), "ends beyond"},
        Damage{"first document", documents, Bytes<int64_t>({1}), "begins at sequence 1"},
        Damage{"falling", documents + 8, Bytes<int64_t>({-1}), "document boundary 1 is -1"},
        Damage{"beyond", documents + 8, Bytes<int64_t>({4}), "document boundary 1 is 4"},
        Damage{"short", documents + 16, Bytes<int64_t>({2}),
               "the last document ends at sequence 2 of 3"}}) {
    SCOPED_TRACE(damage.what);
    std::string bad = index;
    bad.replace(damage.at, damage.bytes.size(), damage.bytes);
    Write("bad.idx", bad);
    Write("bad.bin", tokens);
    const absl::Status status = Indexed("bad", 0, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(damage.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("bad."));
  }
}

TEST_F(DataFiles, IndexedRefusesEveryTruncation) {
  WritePair<uint16_t>(Path("p"), 8);
  const std::string index = ReadFile(Path("p.idx")).value(),
                    tokens = ReadFile(Path("p.bin")).value();
  for (size_t size = 0; size < index.size(); ++size) {
    Write("p.idx", index.substr(0, size));
    EXPECT_EQ(Indexed("p", 0, 2).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  Write("p.idx", index + "x");
  EXPECT_EQ(Indexed("p", 0, 2).status().code(), absl::StatusCode::kDataLoss);
  Write("p.idx", index);
  for (size_t size = 0; size < tokens.size(); ++size) {
    Write("p.bin", tokens.substr(0, size));
    EXPECT_EQ(Indexed("p", 0, 2).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  std::filesystem::remove(Path("p.bin"));
  EXPECT_THAT(std::string(Indexed("p", 0, 2).status().message()), HasSubstr("p.bin"));
  std::filesystem::remove(Path("p.idx"));
  EXPECT_THAT(std::string(Indexed("p", 0, 2).status().message()), HasSubstr("p.idx"));
}

// Mutated pairs either open and read, or are refused; run under the sanitizers this shows that
// nothing is read outside.
TEST_F(DataFiles, IndexedSurvivesRandomDamage) {
  WritePair<uint16_t>(Path("p"), 8);
  const std::string index = ReadFile(Path("p.idx")).value();
  int opened = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string bad = index;
    for (uint64_t e = 0; e < 1 + RandomBits(2, i, 0) % 3; ++e) {
      bad[9 + RandomBits(2, i, 2 * e + 1) % (bad.size() - 9)] = char(RandomBits(2, i, 2 * e + 2));
    }
    Write("p.idx", bad);
    const auto splits = Indexed("p", 0.4, 2);
    if (!splits.ok()) continue;
    ++opened;
    for (int64_t s = 0; s < splits->train->num_samples(); ++s) {
      (void)ReadOneSample(*splits->train, s);
    }
  }
  EXPECT_LT(opened, 2000);
}

TEST_F(DataFiles, ManySequencesAreReadAcrossBlocks) {
  const auto writer = IndexedWriter::Create(Path("many"), IndexDType::kInt32);
  ASSERT_TRUE(writer.ok());
  std::vector<int32_t> all;
  for (int32_t d = 0; d < 1000; ++d) {
    // Some documents are empty.
    std::vector<int32_t> document(RandomBits(4, 0, uint64_t(d)) % 7);
    for (int32_t& token : document) {
      token = int32_t(all.size());
      all.push_back(token);
    }
    ASSERT_TRUE((*writer)->AddDocument(document).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto splits = Indexed("many", 0.1, 13);
  ASSERT_TRUE(splits.ok()) << splits.status();
  int64_t last = 0;
  for (int64_t i = 0; i < splits->train->num_samples(); ++i) {
    const auto sample = Sample(*splits->train, i);
    for (size_t t = 0; t < sample.size(); ++t) {
      ASSERT_EQ(sample[t], 13 * i + int64_t(t));
      last = sample[t];
    }
  }
  EXPECT_GT(Sample(*splits->validation, 0)[0], last);
  const int64_t n = splits->validation->num_samples();
  EXPECT_LT(int64_t(all.size()) - 1 - Sample(*splits->validation, n - 1)[13], 13);
}

// Catches an index of older tokens beside new ones.
TEST_F(DataFiles, WriterRefusesWhatItsTypeCannotHoldAndLeavesNothingUnfinished) {
  const std::vector<int32_t> older = {1, 2, 3};
  const auto finished = IndexedWriter::Create(Path("w"), IndexDType::kUint16);
  ASSERT_TRUE((*finished)->AddDocument(older).ok());
  ASSERT_TRUE((*finished)->Finish().ok());
  ASSERT_EQ(ListDirectory(directory_)->size(), 2u);
  {
    const auto writer = IndexedWriter::Create(Path("w"), IndexDType::kUint16);
    const std::vector<int32_t> tokens = {1, 65536};
    EXPECT_EQ((*writer)->AddDocument(tokens).code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_TRUE(ListDirectory(directory_)->empty());
}

// The documents joined are the text; catches a splitter that drops blank lines or the last line
// without an end.
TEST_F(DataFiles, TokenizedTextIsTheTextByteForByte) {
  const std::string text = "\n\nfirst\nparagraph\n\n\nsecond\r\n \t\nthird, without an end";
  Write("t.txt", text);
  const auto corpus = TokenizeBytes(Path("t.txt"), Path("t"), DocumentSplit::kParagraph);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ(corpus->documents, 3);
  EXPECT_EQ(corpus->tokens, int64_t(text.size()));
  const auto splits = Indexed("t", 0, int64_t(text.size()) - 1, 256);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const auto sample = Sample(*splits->train, 0);
  EXPECT_EQ(std::string(sample.begin(), sample.end()), text);
  const auto held = Indexed("t", 0.1, 5, 256);
  const auto last = Sample(*held->validation, 0);
  EXPECT_EQ(std::string(last.begin(), last.end()), "third,");
  EXPECT_EQ(TokenizeBytes(Path("t.txt"), Path("whole"), DocumentSplit::kFile)->documents, 1);
  EXPECT_TRUE(TokenizeBytes(Path("t.txt"), Path("made/below/t"), DocumentSplit::kFile).ok());
  EXPECT_TRUE(Exists(Path("made/below/t.idx")));
  EXPECT_THAT(
      std::string(
          TokenizeBytes(Path("t.txt"), Path("made/"), DocumentSplit::kFile).status().message()),
      ::testing::HasSubstr("and a name"));
  Write("empty", "");
  EXPECT_EQ(TokenizeBytes(Path("empty"), Path("e"), DocumentSplit::kFile).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(DataFiles, TokenizingKeepsWhatIsThere) {
  Write("t.txt", "new");
  for (const char* name : {"old.bin", "other.idx"}) {
    Write(name, "kept");
    const std::string prefix = Path(std::string(name).substr(0, std::string(name).find('.')));
    const auto refused = TokenizeBytes(Path("t.txt"), prefix, DocumentSplit::kFile);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(Path(name)));
    EXPECT_EQ(*ReadFile(Path(name)), "kept");
  }
  EXPECT_EQ(ListDirectory(directory_)->size(), 3u);
}

}  // namespace
}  // namespace trainyard
