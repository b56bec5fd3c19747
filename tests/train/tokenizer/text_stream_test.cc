// Proves that a text which is written token by token is the text of all tokens, for every tokenizer
// of tests/golden/tokenizers, whatever stands before it.

#include "train/tokenizer/text_stream.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "train/tokenizer/byte_tokenizer.h"

namespace trainyard {
namespace {

std::vector<int32_t> IdsOf(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.NewEncoder()->Encode(text, ids).ok());
  return ids;
}

// Writes the ids from `begin` on, and requires that each piece is valid UTF-8.
std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, size_t begin) {
  TextStream stream(tokenizer, {ids.begin(), ids.begin() + std::ptrdiff_t(begin)});
  std::string all;
  for (size_t i = begin; i < ids.size(); ++i) {
    const std::string more = stream.Add(ids[i]).value();
    EXPECT_EQ(more, ValidUtf8(more));
    all += more;
  }
  return all + stream.End().value();
}

TEST(TextStream, PiecesMakeTheTextOfAllTokens) {
  const std::string text =
      "It's 12 o'clock; \xE6\xB1\x89\xE5\xAD\x97 \xF0\x9F\x91\xA9\xE2\x80\x8D"
      "\xF0\x9F\x91\xA6, gr\xC3\xBC\xC3\x9F  dich";
  for (const char* file : {"gpt2.json", "llama3.json", "llama2.json", "mistral.json", "gemma.json",
                           "never.json", "llama2_spm.model", "cl100k_base.tiktoken"}) {
    SCOPED_TRACE(file);
    const auto opened = OpenGolden(file);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const std::vector<int32_t> ids = IdsOf(*opened->tokenizer, text);
    const std::string whole = opened->tokenizer->Decode(ids, Specials::kKeep).value();
    EXPECT_EQ(Streamed(*opened->tokenizer, ids, 0), whole);
    // Of the rest of a text, the beginning is not treated as one.
    const std::string rest = Streamed(*opened->tokenizer, ids, 3);
    EXPECT_TRUE(absl::EndsWith(whole, rest)) << rest;
    const std::vector<int32_t> front(ids.begin(), ids.begin() + 3);
    EXPECT_EQ(opened->tokenizer->Decode(front, Specials::kKeep).value() + rest, whole);
  }
}

TEST(TextStream, BytesThatAreNoCharacterAreWrittenAsQuestionMarks) {
  const ByteTokenizer bytes;
  const std::vector<int32_t> ids = {'a', 0xE2, 0x82, 'b', 0xC3, 0xA9, 0xFF, 0xF0, 0x9F};
  EXPECT_EQ(Streamed(bytes, ids, 0), "a??b\xC3\xA9???");
}

}  // namespace
}  // namespace trainyard
