// Proves how blocks are dealt to the parts of a pipeline.

#include "train/pipeline/divide.h"

#include <gmock/gmock.h>

namespace trainyard {
namespace {

using ::testing::ElementsAre;

TEST(DivideBlocks, EmbeddingAndHeadCountAsALayerEach) {
  const auto ranges = DivideBlocks(126, 8 * 8);  // Llama 3.1 405B: 126 + 2 = 8 x 8 x 2.
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  ASSERT_EQ(ranges->size(), 64u);
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ((*ranges)[size_t(i)], (BlockRange{2 * i, 2 * i + 2}));
  }
}

TEST(DivideBlocks, FirstPartsHoldOneMore) {
  EXPECT_THAT(*DivideBlocks(8, 4),
              ElementsAre(BlockRange{0, 3}, BlockRange{3, 6}, BlockRange{6, 8}, BlockRange{8, 10}));
  EXPECT_THAT(*DivideBlocks(3, 2), ElementsAre(BlockRange{0, 3}, BlockRange{3, 5}));
  EXPECT_THAT(*DivideBlocks(1, 1), ElementsAre(BlockRange{0, 3}));
}

TEST(DivideBlocks, EveryBlockIsInOnePartAndPartsDifferByAtMostOne) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int parts = 1; parts <= layers + 2; ++parts) {
      const auto ranges = DivideBlocks(layers, parts);
      ASSERT_TRUE(ranges.ok()) << ranges.status();
      ASSERT_EQ(ranges->size(), size_t(parts));
      int64_t next = 0, most = ranges->front().end;
      for (const BlockRange& range : *ranges) {
        const int64_t blocks = range.end - range.begin;
        ASSERT_EQ(range.begin, next);
        ASSERT_GE(blocks, 1);
        ASSERT_LE(blocks, most);
        ASSERT_GE(blocks, ranges->front().end - 1);
        most = blocks;
        next = range.end;
      }
      ASSERT_EQ(next, layers + 2);
    }
  }
}

TEST(DivideBlocks, NoPartIsEmpty) {
  EXPECT_EQ(DivideBlocks(6, 9).status().message(),
            "wanted 1 to 8 parts (stages x chunks) for 6 layers with embedding and head, found 9; "
            "nearest 8");
  EXPECT_FALSE(DivideBlocks(6, 0).ok());
  EXPECT_TRUE(DivideBlocks(6, 8).ok());
}

}  // namespace
}  // namespace trainyard
