// Proves that packing is first fit, that each epoch has every document once and whole, in an order
// of its own, that any sample is found at once, and that little is padding.

#include "train/data/packed_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "common/rng.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;

TEST(FirstFit, TakesTheFirstSampleWithRoom) {
  const std::vector<int32_t> lengths = {6, 5, 4, 10, 5, 1};
  EXPECT_THAT(FirstFit(lengths, 10), ElementsAre(0, 1, 0, 2, 1, 3));
  EXPECT_TRUE(FirstFit({}, 10).empty());
}

// The rule, without a tree.
TEST(FirstFit, IsWhatTheRuleSays) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int32_t capacity = 1 + int32_t(RandomBits(seed, 0, 0) % 50);
    std::vector<int32_t> lengths(RandomBits(seed, 0, 1) % 300), room, wanted;
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = 1 + int32_t(RandomBits(seed, 1, i) % uint64_t(capacity));
      const auto first =
          std::find_if(room.begin(), room.end(), [&](int32_t left) { return left >= lengths[i]; });
      wanted.push_back(int32_t(first - room.begin()));
      if (first == room.end()) room.push_back(capacity);
      room[size_t(wanted.back())] -= lengths[i];
    }
    EXPECT_EQ(FirstFit(lengths, capacity), wanted) << seed;
  }
}

constexpr int64_t kDocuments = 10'000;  // Three groups, the last of which is not full.
constexpr int32_t kCapacity = 512;

// Lengths from 1 to 511, most of them short, and some of 0.
int32_t LengthOf(int64_t document) {
  const double u = Uniform(7, 0, uint64_t(document));
  return document % 97 == 0 ? 0 : 1 + int32_t(510 * u * u);
}

PackedOrder Order(uint64_t key) {
  return PackedOrder(kDocuments, kCapacity, key,
                     [](std::span<const int64_t> documents, std::span<int32_t> lengths) {
                       std::transform(documents.begin(), documents.end(), lengths.begin(),
                                      LengthOf);
                       return absl::OkStatus();
                     });
}

std::vector<int64_t> AllDocuments() {
  std::vector<int64_t> all;
  for (int64_t document = 0; document < kDocuments; ++document) {
    if (LengthOf(document) > 0) all.push_back(document);
  }
  return all;
}

TEST(PackedOrder, HasEveryDocumentOnceInEachEpoch) {
  const PackedOrder order = Order(1);
  const std::vector<int64_t> wanted = AllDocuments();
  std::set<std::vector<int64_t>> first_samples;
  int64_t sample = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> all;
    std::set<std::vector<int64_t>> samples_of_epoch;
    int64_t tokens = 0;
    const int64_t begin = sample;
    while (all.size() < wanted.size()) {
      const auto documents = order.DocumentsOf(sample++);
      ASSERT_TRUE(documents.ok()) << documents.status();
      int32_t length = 0;
      for (const int64_t document : *documents) length += LengthOf(document);
      EXPECT_GE(length, 1);
      EXPECT_LE(length, kCapacity);
      tokens += length;
      all.insert(all.end(), documents->begin(), documents->end());
      samples_of_epoch.insert(*documents);
    }
    const int64_t samples = sample - begin;
    EXPECT_LT(1 - double(tokens) / double(samples * kCapacity), 0.02);  // Padding.
    if (epoch == 0) {
      EXPECT_EQ(order.FirstEpoch()->samples, samples);
      EXPECT_EQ(order.FirstEpoch()->tokens, tokens);
      first_samples = samples_of_epoch;
    }
    EXPECT_EQ(epoch > 0, samples_of_epoch != first_samples);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, wanted) << epoch;
  }
}

// A rank that resumes reads the same sample as one that read all samples before.
TEST(PackedOrder, FindsASampleWithoutThoseBefore) {
  const PackedOrder read_on = Order(2);
  const int64_t samples = read_on.FirstEpoch()->samples;
  for (const int64_t sample : {int64_t{0}, samples - 1, samples, 2 * samples + 5}) {
    EXPECT_EQ(*read_on.DocumentsOf(sample), *Order(2).DocumentsOf(sample)) << sample;
    EXPECT_NE(*read_on.DocumentsOf(sample), *Order(3).DocumentsOf(sample)) << sample;
  }
}

TEST(PackedOrder, WantsADocument) {
  const PackedOrder order(5, 10, 1, [](std::span<const int64_t>, std::span<int32_t> lengths) {
    std::fill(lengths.begin(), lengths.end(), 0);
    return absl::OkStatus();
  });
  EXPECT_EQ(order.FirstEpoch().status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace trainyard
