// Proves that a file that was cut is refused, where the rest would still be read, to other ids.

#include <gmock/gmock.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/train/tokenizer/golden_file.h"
#include "train/tokenizer/sentencepiece_tokenizer.h"
#include "train/tokenizer/tiktoken.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

// A file of tiktoken: all bytes, and then pairs of them. `hole` is left out.
std::string Ranks(int64_t count, int64_t hole = -1) {
  std::string file;
  for (int64_t rank = 0; rank < count; ++rank) {
    if (rank == hole) continue;
    std::string token(1, char(rank));
    // Three bytes of the number's base 64 are enough for 2^18 ranks.
    if (rank >= 256)
      token = {char('0' + rank / 4096), char('0' + rank / 64 % 64), char('0' + rank % 64)};
    absl::StrAppend(&file, absl::Base64Escape(token), " ", rank, "\n");
  }
  return file;
}

std::string RefusalOf(const absl::StatusOr<std::unique_ptr<Tokenizer>>& tokenizer) {
  if (tokenizer.ok()) return "accepted";
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << tokenizer.status();
  return std::string(tokenizer.status().message());
}

TEST(CutFiles, OfTiktokenHaveLessRanksThanThePublishedOnes) {
  EXPECT_EQ(RefusalOf(ReadTiktoken(Ranks(50256), "r50k_base")), "accepted");
  EXPECT_EQ(RefusalOf(ReadTiktoken(Ranks(50281, 50256), "p50k_base")), "accepted");
  EXPECT_EQ(RefusalOf(ReadTiktoken(Ranks(100256), "cl100k_base")), "accepted");
  EXPECT_THAT(RefusalOf(ReadTiktoken(Ranks(50255), "r50k_base")),
              HasSubstr("wanted the 50256 ranks of r50k_base, found 50255: the file is cut"));
  EXPECT_THAT(RefusalOf(ReadTiktoken(Ranks(700), "o200k_base")), HasSubstr("the 199998 ranks"));
  EXPECT_THAT(RefusalOf(ReadTiktoken(Ranks(700), "qwen")), HasSubstr("the 151643 ranks"));
  const auto opened = OpenTokenizer(GoldenTokenizers() + "/cl100k_base.tiktoken");
  EXPECT_THAT(opened.status().message(), HasSubstr("the 100256 ranks of cl100k_base, found 700"));
}

// Bug it must catch: an error about a user's file that names a place in the library's sources.
TEST(CutFiles, OfSentencePieceAreRefusedWithoutThePlaceInTheLibrary) {
  const std::string model = *ReadFile(GoldenTokenizers() + "/llama2_spm.model");
  for (const std::string& bytes : {std::string("nonsense"), std::string(), model.substr(0, 1000)}) {
    const std::string refusal = RefusalOf(ReadSentencePiece(bytes));
    EXPECT_THAT(refusal, HasSubstr("found bytes that are none of them ("));
    EXPECT_THAT(refusal, ::testing::Not(HasSubstr(".cc")));
    EXPECT_THAT(refusal, ::testing::Not(HasSubstr("[")));
  }
}

TEST(CutFiles, OfTiktokenHaveNoHoles) {
  EXPECT_EQ(RefusalOf(ReadTiktoken(Ranks(700), "cl100k_base", TiktokenSize::kAny)), "accepted");
  EXPECT_THAT(RefusalOf(ReadTiktoken(Ranks(700, 500), "cl100k_base", TiktokenSize::kAny)),
              HasSubstr("wanted a token for each rank, found none for 500"));
  // The last line is cut within its rank.
  EXPECT_THAT(RefusalOf(ReadTiktoken(Ranks(50256, 50200) + "IA== 5", "r50k_base")),
              HasSubstr("wanted"));
}

// Catches a model of which the pieces alone are left: the library reads it, with its defaults.
TEST(CutFiles, OfSentencePieceLackTheSpecsThatFollowThePieces) {
  const std::string model = ReadFile(GoldenTokenizers() + "/spaces_spm.model").value();
  ASSERT_EQ(RefusalOf(ReadSentencePiece(model)), "accepted");
  int cut_between_pieces = 0;
  for (size_t bytes = 3000; bytes < 4000; ++bytes) {
    const std::string refusal = RefusalOf(ReadSentencePiece(model.substr(0, bytes)));
    EXPECT_NE(refusal, "accepted") << bytes;
    if (absl::StrContains(refusal, "the model is cut")) ++cut_between_pieces;
  }
  EXPECT_GT(cut_between_pieces, 10);
}

}  // namespace
}  // namespace trainyard
