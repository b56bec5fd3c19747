// Proves the plan of an expert dispatch against its definition, for ranks side by side: what one
// sends another expects, nothing is lost or sent twice, no rank takes more rows than the bound,
// rows arrive grouped by expert, and all ranks count the same rounds.
#include "models/program/ops/expert_rounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "common/rng.h"
#include "gtest/gtest.h"

namespace trainyard::ops {
namespace {

struct Case {
  int64_t ranks, experts, slots, bound;
  bool one_expert;  // All choose the last.
  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.ranks << " ranks, " << c.experts << " experts, " << c.slots << " slots, bound "
         << c.bound << (c.one_expert ? ", one expert" : "");
  }
};

// A row on its way.
struct Row {
  int64_t source, slot;
  auto operator<=>(const Row&) const = default;
};

class ExpertRoundsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    std::vector<int32_t> counts(size_t(c.ranks * c.experts));
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      for (int64_t slot = 0; slot < c.slots; ++slot) {
        const uint64_t random = RandomBits(1, uint64_t(rank), uint64_t(slot));
        const int64_t expert = c.one_expert ? c.experts - 1 : int64_t(random % c.experts);
        expert_[{rank, slot}] = expert;
        ++counts[size_t(rank * c.experts + expert)];
      }
    }
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      ranks_.emplace_back(ExpertRoundsOptions{.ranks = c.ranks,
                                              .rank = rank,
                                              .experts = c.experts,
                                              .slots = c.slots,
                                              .bound = c.bound});
      std::copy(counts.begin(), counts.end(), ranks_.back().counts().begin());
      const std::span<int32_t> order = ranks_.back().order();
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return expert_.at({rank, a}) < expert_.at({rank, b});
      });
    }
  }

  // What a rank receives in the round begun: the blocks that the others send it, in rank order.
  std::vector<Row> Received(int64_t target) {
    std::vector<Row> rows;
    for (int64_t source = 0; source < GetParam().ranks; ++source) {
      const ExpertRounds& from = ranks_[size_t(source)];
      const auto to = from.send_rows().begin() + target;
      const int64_t begin = std::accumulate(from.send_rows().begin(), to, int64_t{0});
      EXPECT_EQ(*to, ranks_[size_t(target)].receive_rows()[size_t(source)]);
      for (int64_t i = begin; i < begin + *to; ++i) {
        rows.push_back({source, from.sent()[size_t(i)]});
      }
    }
    return rows;
  }

  std::map<Row, int64_t> expert_;
  std::vector<ExpertRounds> ranks_;
};

TEST_P(ExpertRoundsTest, EveryRowReachesItsExpertOnceAndWithinTheBound) {
  const Case& c = GetParam();
  const int64_t rounds = ranks_[0].Count(), local = c.experts / c.ranks;
  std::set<Row> arrived;
  size_t fullest = 0;  // Of the last round.
  for (int64_t round = 0; round < rounds; ++round) {
    for (ExpertRounds& rank : ranks_) rank.Begin(round);
    fullest = 0;
    for (int64_t target = 0; target < c.ranks; ++target) {
      const ExpertRounds& rank = ranks_[size_t(target)];
      const std::vector<Row> rows = Received(target);
      ASSERT_LE(int64_t(rows.size()), c.bound);
      ASSERT_EQ(rows.size(), rank.grouped().size());
      fullest = std::max(fullest, rows.size());
      Row last{-1, -1};
      for (int64_t g = 0; g < local; ++g, last = {-1, -1}) {
        for (int32_t i = rank.offsets()[size_t(g)]; i < rank.offsets()[size_t(g + 1)]; ++i) {
          const int32_t received = rank.grouped()[size_t(i)];
          EXPECT_EQ(rank.ungrouped()[size_t(received)], i);
          const Row row = rows[size_t(received)];
          EXPECT_EQ(expert_.at(row), target * local + g);
          EXPECT_LT(last, row);
          EXPECT_TRUE(arrived.insert(row).second);
          last = row;
        }
      }
    }
  }
  EXPECT_EQ(int64_t(arrived.size()), c.ranks * c.slots);
  EXPECT_TRUE(fullest > 0 || c.slots == 0) << "a round for nothing";
}

TEST_P(ExpertRoundsTest, PlacesAreWhereTheSlotsLieAmongThoseSent) {
  for (ExpertRounds& rank : ranks_) {
    ASSERT_EQ(rank.Count(), ranks_[0].Count());
    for (int64_t round = 0; round < rank.Count(); ++round) {
      rank.Begin(round);
      size_t here = 0;
      for (int64_t slot = 0; slot < GetParam().slots; ++slot) {
        const int32_t place = rank.place()[size_t(slot)];
        if (place < 0) continue;
        ++here;
        EXPECT_EQ(rank.sent()[size_t(place)], slot);
      }
      EXPECT_EQ(here, rank.sent().size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ExpertRoundsTest,
                         ::testing::Values(Case{1, 4, 10, 10, false}, Case{1, 4, 10, 3, false},
                                           Case{2, 4, 12, 24, false}, Case{2, 4, 12, 5, false},
                                           Case{4, 8, 7, 1, false}, Case{3, 6, 20, 9, false},
                                           Case{4, 4, 6, 6, true}, Case{2, 6, 5, 100, true},
                                           Case{8, 16, 3, 2, false}));

}  // namespace
}  // namespace trainyard::ops
