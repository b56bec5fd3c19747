// Proves which tokens each limit leaves and with which probabilities, and that a text ends before a
// stop text however the text is cut into pieces.
//
// Bug it must catch: probabilities that add up in another order than that of likelihood, and the
// beginning of a stop text that was already written.

#include "train/generate/sampling.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "train/generate/stop_texts.h"

namespace trainyard::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// The part of all uniform numbers that draws each token.
std::vector<double> Drawn(const std::vector<float>& logits, const Sampling& sampling) {
  constexpr int kDraws = 100'000;
  std::vector<double> parts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    parts[size_t(SampleToken(logits, sampling, (i + 0.5) / kDraws))] += 1.0 / kDraws;
  }
  return parts;
}

auto Near(const std::vector<double>& want) { return Pointwise(DoubleNear(1e-4), want); }

// Logits of these probabilities.
std::vector<float> Logits(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(float(std::log(p)));
  return logits;
}

const std::vector<float> kFour = Logits({0.1, 0.4, 0.2, 0.3});

TEST(Sampling, DrawsByProbability) {
  EXPECT_THAT(Drawn(kFour, {.temperature = 1}), Near({0.1, 0.4, 0.2, 0.3}));
  // Half the temperature squares probabilities.
  EXPECT_THAT(Drawn(kFour, {.temperature = 0.5}), Near({1 / 30., 16 / 30., 4 / 30., 9 / 30.}));
  EXPECT_EQ(SampleToken(kFour, {.temperature = 0}, 0.999), 1);
}

TEST(Sampling, LimitsLeaveTheLikeliest) {
  const auto expect = [](const Sampling& sampling, const std::vector<double>& want) {
    EXPECT_THAT(Drawn(kFour, sampling), Near(want));
  };
  expect({.temperature = 1, .top_k = 2}, {0, 4 / 7., 0, 3 / 7.});
  expect({.temperature = 1, .top_k = 9}, {0.1, 0.4, 0.2, 0.3});
  expect({.temperature = 1, .top_p = 0.69}, {0, 4 / 7., 0, 3 / 7.});
  expect({.temperature = 1, .top_p = 0.71}, {0, 4 / 9., 2 / 9., 3 / 9.});
  expect({.temperature = 1, .top_p = 0}, {0, 1, 0, 0});
  expect({.temperature = 1, .min_p = 0.4}, {0, 4 / 9., 2 / 9., 3 / 9.});
  expect({.temperature = 1, .min_p = 1}, {0, 1, 0, 0});
  // Each limit sees the probabilities that the one before has left: 0.4 / 0.7 is above 0.57.
  expect({.temperature = 1, .top_k = 2, .top_p = 0.57}, {0, 1, 0, 0});
}

TEST(Sampling, OfEquallyLikelyTokensTheFirstOnesStay) {
  EXPECT_THAT(Drawn(Logits({0.2, 0.3, 0.3, 0.2}), {.temperature = 1, .top_k = 3}),
              Near({0.25, 0.375, 0.375, 0}));
}

TEST(Sampling, SettingsHaveRanges) {
  EXPECT_TRUE(Check(Sampling()).ok());
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Check({.temperature = 101}).message(),
              HasSubstr("temperature: wanted 0 <= x <= 100"));
  EXPECT_THAT(Check({.temperature = kNan}).message(), HasSubstr("temperature: wanted"));
  EXPECT_THAT(Check({.top_k = -1}).message(), HasSubstr("top-k: wanted 0 to 1000000, found -1"));
  EXPECT_THAT(Check({.top_p = 1.1}).message(), HasSubstr("top-p: wanted 0 <= x <= 1, found 1.1"));
  EXPECT_THAT(Check({.min_p = -0.1}).message(), HasSubstr("min-p: wanted 0 <= x <= 1"));
}

TEST(StopTexts, EndATextHoweverItIsCut) {
  const std::string text = "one END, two EN three END four";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    for (const auto& [stops, want] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{}, text},
             {{""}, text},
             {{"five"}, text},
             {{"four?"}, text},
             {{"END"}, "one "},
             {{"END f"}, "one END, two EN three "},
             {{"three", "two EN t"}, "one END, "}}) {
      StopTexts stop(stops);
      std::string written;
      for (size_t at = 0; at < text.size(); at += piece)
        written += stop.Add(text.substr(at, piece));
      written += stop.End();
      EXPECT_EQ(written, want) << piece;
      EXPECT_EQ(stop.stopped(), want != text);
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
