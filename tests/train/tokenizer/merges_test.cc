// Proves that a word is joined in the order of ranks, whether it is short or long, and that texts
// which are cut where no token crosses have the ids of the whole text.

#include "train/tokenizer/merges.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "common/utf8.h"
#include "train/tokenizer/bpe.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;

// The definition: look at all pairs, join the leftmost of the lowest rank, begin anew.
std::vector<int32_t> JoinedByDefinition(const MergeTable& table, std::vector<int32_t> symbols) {
  for (;;) {
    size_t best = symbols.size();
    MergeTable::Merge merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge found = table.Find(symbols[i], symbols[i + 1]);
      if (found.rank >= merge.rank) continue;
      merge = found;
      best = i;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = merge.id;
    symbols.erase(symbols.begin() + std::ptrdiff_t(best) + 1);
  }
}

TEST(Merges, TheLowestRankComesFirstAndThenTheLeftmost) {
  MergeTable table(3);
  table.Add(1, 2, {1, 10});
  table.Add(2, 3, {0, 11});
  table.Add(1, 1, {2, 12});
  Merger merger(table);
  std::vector<int32_t> symbols = {1, 2, 3};
  merger.Join(symbols);
  EXPECT_THAT(symbols, ElementsAre(1, 11));
  symbols = {1, 1, 1};
  merger.Join(symbols);
  EXPECT_THAT(symbols, ElementsAre(12, 1));
}

TEST(Merges, ShortAndLongWordsAreJoinedAsTheDefinitionSays) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    // Tokens are texts of two letters, so that many merges lead to one token.
    std::vector<std::string> texts = {"a", "b"};
    MergeTable table(60);
    for (uint32_t rank = 0; rank < 60; ++rank) {
      const size_t left = RandomBits(seed, 1, rank) % texts.size();
      const size_t right = RandomBits(seed, 2, rank) % texts.size();
      const std::string joined = texts[left] + texts[right];
      const auto known = std::find(texts.begin(), texts.end(), joined);
      const int32_t id = int32_t(known - texts.begin());
      if (known == texts.end()) texts.push_back(joined);
      table.Add(int32_t(left), int32_t(right), {rank, id});
    }
    Merger merger(table);
    for (const size_t size : {0u, 1u, 2u, 3u, 17u, 47u, 48u, 49u, 50u, 300u}) {
      std::vector<int32_t> symbols;
      for (size_t i = 0; i < size; ++i) symbols.push_back(int32_t(RandomBits(seed, 3, i) % 2));
      const std::vector<int32_t> wanted = JoinedByDefinition(table, symbols);
      merger.Join(symbols);
      EXPECT_EQ(symbols, wanted) << "seed " << seed << ", " << size << " symbols";
    }
  }
}

TEST(Merges, TextsAreCutOnlyWhereNoTokenCrosses) {
  const std::string mark = "\xE2\x96\x81";
  Vocabulary words;
  const std::vector<std::string> tokens = {mark, "a", "b", ">", mark + "a", ">" + mark};
  for (size_t id = 0; id < tokens.size(); ++id) {
    ASSERT_TRUE(words.Add(tokens[id], int64_t(id)).ok());
  }
  MergeTable table(2);
  table.Add(0, 1, {0, 4});
  table.Add(3, 0, {1, 5});
  const Bpe bpe(std::move(words), std::move(table), {.unk = 2});
  EXPECT_EQ(bpe.PartEnd("ab" + mark + "a"), 2u);
  EXPECT_EQ(bpe.PartEnd(">" + mark + "a"), 5u);   // The token >_ may cross.
  EXPECT_EQ(bpe.PartEnd(mark + mark + "a"), 7u);  // So may a run of marks.
  EXPECT_EQ(bpe.PartEnd(mark + "a" + mark + "b"), 4u);
}

}  // namespace
}  // namespace trainyard
