// Proves that the tokens of a job's files are read once at its start: the first one beyond the
// vocabulary is named, whichever rank and thread reads it; and files that would take too long are
// left, which the caller is told.

#include "train/data/token_check.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 5'000'001;

// Tokens without a file. Reading them takes time by the test's clock.
class Tokens final : public TokenStream {
 public:
  explicit Tokens(IndexDType dtype = IndexDType::kInt32) : dtype_(dtype) {}
  int64_t num_tokens() const override { return kTokens; }
  int64_t vocab() const override { return 1000; }
  IndexDType dtype() const override { return dtype_; }
  absl::Status Read(int64_t first, std::span<int32_t> out) const override {
    read += int64_t(out.size());
    if (clock != nullptr) clock->Advance(takes);
    for (const int64_t bad : beyond) {
      if (bad >= first && bad < first + int64_t(out.size())) {
        return absl::OutOfRangeError(absl::StrCat("token at ", bad));
      }
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> beyond;
  FakeClock* clock = nullptr;
  absl::Duration takes;
  mutable std::atomic<int64_t> read = 0;

 private:
  const IndexDType dtype_;
};

TEST(TokenCheck, ReadsEveryTokenOnceInAllParts) {
  for (const int64_t parts : {1, 3, 7}) {
    const auto tokens = std::make_shared<Tokens>(), others = std::make_shared<Tokens>();
    for (int64_t part = 0; part < parts; ++part) {
      const auto checked =
          CheckTokens({tokens, others}, {.part = part, .parts = parts, .threads = 3});
      ASSERT_TRUE(checked.ok()) << checked.status();
      EXPECT_TRUE(*checked);
    }
    EXPECT_EQ(tokens->read, kTokens);
    EXPECT_EQ(others->read, kTokens);
  }
}

TEST(TokenCheck, NamesTheFirstTokenInTheOnlyPartThatHasIt) {
  for (const int64_t at : {int64_t{0}, int64_t{1} << 20, int64_t{4'000'000}, kTokens - 1}) {
    const auto tokens = std::make_shared<Tokens>();
    tokens->beyond = {at, kTokens - 1};
    int found = 0;
    for (int64_t part = 0; part < 4; ++part) {
      const auto checked = CheckTokens({tokens}, {.part = part, .parts = 4, .threads = 4});
      if (checked.ok()) continue;
      if (found++ == 0) {
        EXPECT_THAT(std::string(checked.status().message()), HasSubstr(absl::StrCat("at ", at)));
      }
    }
    EXPECT_GE(found, 1);
  }
}

TEST(TokenCheck, LeavesWhatTakesTooLong) {
  const auto tokens = std::make_shared<Tokens>();
  FakeClock clock;
  tokens->clock = &clock;
  // Five chunks: 50 and 75 seconds.
  tokens->takes = absl::Seconds(10);
  EXPECT_TRUE(*CheckTokens({tokens}, {.clock = clock}));
  tokens->takes = absl::Seconds(15);
  tokens->read = 0;
  EXPECT_FALSE(*CheckTokens({tokens}, {.clock = clock}));
  EXPECT_LT(tokens->read, kTokens / 2) << "is seen soon";
}

TEST(TokenCheck, DoesNotReadWhatCannotExceedTheVocabulary) {
  const auto bytes = std::make_shared<Tokens>(IndexDType::kUint8);
  const auto words = std::make_shared<Tokens>(IndexDType::kUint16);
  EXPECT_TRUE(*CheckTokens({bytes, words}, {}));
  EXPECT_EQ(bytes->read, 0);
  EXPECT_EQ(words->read, kTokens);
  EXPECT_TRUE(MayExceedVocabulary(Tokens(IndexDType::kInt8))) << "negative ones";
}

}  // namespace
}  // namespace trainyard
