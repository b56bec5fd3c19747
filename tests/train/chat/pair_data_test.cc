// Proves that files of pairs of answers become packed samples: both conversations of a pair side by
// side, in one sample, targets in the answers that are compared alone, and what the reference says
// of an answer at its first token. And that a pair that is too long is cut or left out as a whole.

#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "models/language_model.h"
#include "tests/train/chat/golden_chat.h"
#include "train/chat/chat_lines.h"
#include "train/data/chat.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPairVocab = 2000;

class PairFiles : public ::testing::Test {
 protected:
  PairFiles() : directory_(::testing::TempDir() + "/pair_files") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    std::ofstream(directory_ + "/tokenizer.json") << OpenGoldenChat("chatml").tokenizer_json;
  }
  absl::StatusOr<DataSplits> Open(const std::string& lines, int64_t sequence,
                                  TooLong too_long = TooLong::kRefuse) const {
    std::ofstream(directory_ + "/pairs.jsonl") << lines;
    return OpenData({.source = ChatData{.path = directory_ + "/pairs.jsonl",
                                        .tokenizer = directory_ + "/tokenizer.json",
                                        .format = "chatml",
                                        .too_long = too_long},
                     .inputs = TokenInputs(kPairVocab),
                     .sequence = sequence,
                     .seed = 1,
                     .pairs = true,
                     .roots = Roots({directory_}),
                     .open_lines = OpenChatLines});
  }
  std::string Refusal(const std::string& lines, int64_t sequence) const {
    const auto opened = Open(lines, sequence);
    return opened.ok() ? "" : std::string(opened.status().message());
  }
  // The conversation {question, answer} as its tokens, and how many of them are of the question.
  EncodedLine Chat(const std::string& question, const std::string& answer) const {
    const auto encoding = OpenChatLines(
        {.tokenizer = directory_ + "/tokenizer.json", .format = "chatml", .vocab = kPairVocab});
    CHECK(encoding.ok()) << encoding.status();
    EncodedLine encoded;
    const absl::Status status = (*encoding)->NewEncoder()->Encode(
        absl::StrCat(R"({"prompt": ")", question, R"(", "completion": ")", answer, "\"}"), encoded);
    CHECK(status.ok()) << status;
    return encoded;
  }

  const std::string directory_;
};

std::string Words(int count) {
  std::string words;
  for (int i = 0; i < count; ++i) absl::StrAppend(&words, i == 0 ? "" : " ", "the");
  return words;
}

std::string Pair(int number, int chosen, int rejected) {
  return absl::StrCat(R"({"prompt": "q)", number, R"(", "chosen": ")", Words(chosen),
                      R"(", "rejected": ")", Words(rejected), "\"}\n");
}

struct PairSample {
  std::vector<int32_t> tokens, targets, begins, sides;
  std::vector<double> reference;
};

PairSample ReadPairs(const Dataset& data, int64_t index) {
  std::vector<InputData> out(4, InputData(std::vector<int32_t>()));
  out.emplace_back(std::vector<double>());
  const absl::Status status = data.Read({.index = index}, out);
  CHECK(status.ok()) << status;
  return {std::get<0>(out[0]), std::get<0>(out[1]), std::get<0>(out[2]), std::get<0>(out[3]),
          std::get<2>(out[4])};
}

// The tokens and targets of a side.
struct Side {
  std::vector<int32_t> tokens, targets;
  double reference = 0;
};
std::vector<Side> SidesOf(const PairSample& sample) {
  std::vector<Side> sides;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    if (sample.sides[t] < 0) {
      EXPECT_EQ(sample.targets[t], kNotCounted);
      EXPECT_EQ(sample.reference[t], 0);
      continue;
    }
    if (sample.begins[t] == int32_t(t)) sides.emplace_back();
    EXPECT_EQ(sample.sides[t], int32_t(sides.size()) - 1);
    sides.back().tokens.push_back(sample.tokens[t]);
    sides.back().targets.push_back(sample.targets[t]);
    sides.back().reference += sample.reference[t];
  }
  return sides;
}

TEST_F(PairFiles, HaveBothConversationsOfAPairInOneSample) {
  constexpr int kPairs = 30, kSequence = 128;
  std::string lines;
  for (int i = 0; i < kPairs; ++i) lines += Pair(i, 1 + i * 7 % 20, 1 + i * 5 % 11);
  const auto opened = Open(lines, kSequence);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ(opened->reference->size(), size_t(2 * kPairs));
  for (size_t i = 0; i < size_t(2 * kPairs); ++i) (*opened->reference)[i] = -double(i) - 0.5;
  std::map<int64_t, int> seen;
  for (int64_t index = 0; index < opened->epoch; ++index) {
    const PairSample sample = ReadPairs(*opened->train, index);
    ASSERT_EQ(sample.tokens.size(), size_t(kSequence));
    ASSERT_EQ(sample.sides.size(), size_t(kSequence));
    ASSERT_EQ(sample.reference.size(), size_t(kSequence));
    const std::vector<Side> sides = SidesOf(sample);
    const auto pairs = opened->train->PairsOf(index);
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    ASSERT_EQ(sides.size(), 2 * pairs->size());
    for (size_t i = 0; i < pairs->size(); ++i) {
      const int pair = int((*pairs)[i]);
      ++seen[pair];
      for (const size_t rejected : {0, 1}) {
        const int words = rejected == 0 ? 1 + pair * 7 % 20 : 1 + pair * 5 % 11;
        const EncodedLine want = Chat(absl::StrCat("q", pair), Words(words));
        const Side& side = sides[2 * i + rejected];
        EXPECT_EQ(side.tokens, std::vector<int32_t>(want.ids.begin(), want.ids.end() - 1));
        for (size_t t = 0; t < side.targets.size(); ++t) {
          EXPECT_EQ(side.targets[t], want.counts[t + 1] != 0 ? want.ids[t + 1] : kNotCounted);
        }
        EXPECT_EQ(side.reference, -double(2 * pair + int(rejected)) - 0.5);
      }
    }
  }
  EXPECT_EQ(seen.size(), size_t(kPairs));
  for (const auto& [pair, times] : seen) EXPECT_EQ(times, 1) << pair;
}

// Bug it must catch: answers before the question are learnt as if they were the chosen one.
TEST_F(PairFiles, CompareTheLastAnswersAlone) {
  const std::string before = R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "the the the"}, {"role": "user", "content": "r"}])";
  std::string line =
      absl::StrCat(R"({"prompt": )", before, R"(, "chosen": "the", "rejected": "a"})");
  std::erase(line, '\n');
  const auto opened = Open(line, 128);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::vector<Side> sides = SidesOf(ReadPairs(*opened->train, 0));
  ASSERT_EQ(sides.size(), 2u);
  const EncodedLine chosen = Chat("r", "the"), rejected = Chat("r", "a");
  const auto counted = [](const EncodedLine& line) {
    return std::count(line.counts.begin(), line.counts.end(), 1);
  };
  const auto targets = [](const Side& side) {
    return int64_t(side.targets.size()) -
           std::count(side.targets.begin(), side.targets.end(), kNotCounted);
  };
  EXPECT_EQ(targets(sides[0]), counted(chosen));
  EXPECT_EQ(targets(sides[1]), counted(rejected));
}

TEST_F(PairFiles, AreRefusedCutOrLeftOutAsPairs) {
  const int64_t shorter = int64_t(Chat("q1", Words(2)).ids.size()) - 1,
                longer = int64_t(Chat("q1", Words(40)).ids.size()) - 1;
  const std::string lines = Pair(0, 2, 2) + Pair(1, 40, 2);
  EXPECT_THAT(Refusal(lines, shorter + longer - 1),
              AllOf(HasSubstr(absl::StrCat("wanted pairs of conversations of at most "
                                           "batch.sequence + 2 = ",
                                           shorter + longer + 1, " tokens together, found 1 of 2")),
                    HasSubstr(absl::StrCat("batch.sequence ", shorter + longer, " where"))));
  EXPECT_EQ(Refusal(lines, shorter + longer), "");
  const int64_t sequence = shorter + longer - 5;
  const auto cut = Open(lines, sequence, TooLong::kCut);
  ASSERT_TRUE(cut.ok()) << cut.status();
  std::map<size_t, int> lengths;
  for (int64_t i = 0; i < cut->epoch; ++i) {
    for (const Side& side : SidesOf(ReadPairs(*cut->train, i))) ++lengths[side.tokens.size()];
  }
  EXPECT_EQ(lengths, (std::map<size_t, int>{{size_t(shorter), 3}, {size_t(longer - 5), 1}}));
  const auto dropped = Open(lines, sequence, TooLong::kDrop);
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->epoch, 1);
  EXPECT_EQ(SidesOf(ReadPairs(*dropped->train, 0)).size(), 2u);
  // Both are too long: each gets a half.
  const auto halves = Open(Pair(2, 40, 41), longer + 1, TooLong::kCut);
  ASSERT_TRUE(halves.ok()) << halves.status();
  for (const Side& side : SidesOf(ReadPairs(*halves->train, 0))) {
    EXPECT_EQ(int64_t(side.tokens.size()), (longer + 1) / 2);
  }
}

TEST_F(PairFiles, NameTheFirstLineThatIsWrong) {
  const std::string bad = R"({"prompt": "q", "chosen": "a"})";
  EXPECT_THAT(Refusal(Pair(0, 1, 1) + bad + "\nnothing\n", 64),
              HasSubstr("pairs.jsonl:2: rejected: wanted a text, found no such field"));
  // A file of chats.
  EXPECT_THAT(Refusal(R"({"prompt": "q", "completion": "a"})", 64),
              HasSubstr("pairs.jsonl:1: chosen: wanted a text"));
}

}  // namespace
}  // namespace trainyard
