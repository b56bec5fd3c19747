// Proves that Accesses finds two accesses to the same bytes, one of them a write, if and only if
// nothing orders them, whichever of the two comes first.

#include "kernels/order/accesses.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/order/fields.h"

namespace trainyard {
namespace {

class AccessesTest : public ::testing::Test {
 protected:
  void Write(Accesses::Line line, size_t begin = 0, size_t bytes = 16) {
    accesses_.Write(line, "write", memory_.data() + begin, bytes);
  }
  void Read(Accesses::Line line, size_t begin = 0, size_t bytes = 16) {
    accesses_.Read(line, "read", memory_.data() + begin, bytes);
  }
  bool conflicts() const { return accesses_.conflict().has_value(); }

  Accesses accesses_;
  const Accesses::Line a_ = accesses_.NewLine(), b_ = accesses_.NewLine();
  const std::array<std::byte, 64> memory_ = {};
};

TEST_F(AccessesTest, ALineIsInItsOwnOrder) {
  Write(a_), Read(a_), Write(a_);
  EXPECT_FALSE(conflicts());
}

TEST_F(AccessesTest, ReadsNeedNoOrder) {
  Read(a_), Read(b_), Read(a_);
  EXPECT_FALSE(conflicts());
}

TEST_F(AccessesTest, AWriteBesideAReadIsFoundInEitherOrder) {
  for (const bool write_first : {false, true}) {
    Accesses accesses;
    const Accesses::Line a = accesses.NewLine(), b = accesses.NewLine();
    if (write_first) accesses.Write(a, "write", &memory_[0], 8);
    accesses.Read(b, "read", &memory_[4], 8);
    if (!write_first) accesses.Write(a, "write", &memory_[0], 8);
    const auto conflict = accesses.conflict();
    ASSERT_TRUE(conflict);
    EXPECT_EQ(conflict->data, &memory_[4]);  // The bytes that both touch.
    EXPECT_EQ(conflict->bytes, 4u);
    EXPECT_EQ(conflict->first.writes, write_first);
  }
}

TEST_F(AccessesTest, OtherBytesAreNoConflict) {
  Write(a_, 0, 8), Write(b_, 8, 8), Write(a_, 16, 0);
  EXPECT_FALSE(conflicts());
}

TEST_F(AccessesTest, AMomentOrdersWhatCameBeforeIt) {
  Write(a_);
  accesses_.Join(b_, accesses_.Now(a_));
  Read(b_);
  EXPECT_FALSE(conflicts());
  Write(a_);  // After the moment, and b_'s read is not joined.
  EXPECT_TRUE(conflicts());
}

TEST_F(AccessesTest, AMomentOrdersNothingThatCameAfterIt) {
  const Accesses::Clock moment = accesses_.Now(a_);
  Write(a_);
  accesses_.Join(b_, moment);
  Read(b_);
  EXPECT_TRUE(conflicts());
}

TEST_F(AccessesTest, OrderGoesThroughAThirdLine) {
  const Accesses::Line c = accesses_.NewLine();
  Write(a_);
  accesses_.Join(b_, accesses_.Now(a_));
  accesses_.Join(c, accesses_.Now(b_));
  Write(c);
  EXPECT_FALSE(conflicts());
}

// A later read of one line must not hide an earlier one of another.
TEST_F(AccessesTest, AllReadersSinceTheWriteCount) {
  const Accesses::Line c = accesses_.NewLine();
  Read(a_), Read(b_);
  accesses_.Join(c, accesses_.Now(b_));
  Write(c);
  EXPECT_TRUE(conflicts());
}

TEST_F(AccessesTest, AForkedLineIsOrderedOnlyByItsEnds) {
  Write(a_);
  const Accesses::Line message = accesses_.Fork(a_);
  Read(message);
  accesses_.End(message, a_);
  Write(a_);
  EXPECT_FALSE(conflicts());
  const Accesses::Line again = accesses_.Fork(a_);
  EXPECT_EQ(again, message);
  Read(again);
  Write(a_);
  EXPECT_TRUE(conflicts());
}

// An answer may come into the memory of the question, but the question must still be ended before
// the memory is written otherwise.
TEST_F(AccessesTest, AnAnswerComesAfterItsQuestionAlone) {
  const Accesses::Line question = accesses_.Fork(a_);
  Read(question);
  const Accesses::Line answer = accesses_.Fork(a_);
  accesses_.Write(answer, "receive", memory_.data(), 16, {&question, 1});
  accesses_.End(answer, a_);
  EXPECT_FALSE(conflicts());
  Write(a_);
  EXPECT_TRUE(conflicts());
}

struct Several {
  int number;
  std::array<int, 2> pair = {};
  const char* text = "";
};

TEST(FieldsTest, EachFieldIsVisitedOnceInOrder) {
  static_assert(NumFields<Several>() == 3);
  std::array<const void*, 3> seen = {};
  size_t count = 0;
  const Several several{.number = 1};
  ForEachField(several, [&](const auto& field) { seen[count++] = &field; });
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(seen, (std::array<const void*, 3>{&several.number, &several.pair, &several.text}));
}

}  // namespace
}  // namespace trainyard
