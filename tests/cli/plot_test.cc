// Proves that the plot keeps its size, puts points where they belong, and survives losses that are
// missing, equal or not finite.

#include "cli/plot.h"

#include <gmock/gmock.h>

#include <cmath>

#include "absl/strings/str_split.h"

namespace trainyard::cli {
namespace {

std::vector<std::string> Lines(const std::string& picture) {
  return absl::StrSplit(picture, '\n', absl::SkipEmpty());
}

TEST(Plot, DrawsAFallingLossFromTopLeftToBottomRight) {
  EXPECT_EQ(PlotLosses({{1, 4}, {2, 3}, {3, 2}, {4, 1}}, {{4, 1.5}},
                       {.columns = 30, .rows = 4, .utf8 = false}),
            "loss    * training  o validation\n"
            "      4 +*\n"
            "        |      *\n"
            "        |             *     o\n"
            "      1 +                   *\n"
            "        +--------------------\n"
            "        step 1              4\n");
}

TEST(Plot, ManyStepsShareColumnsAsTheirMean) {
  std::vector<PlotPoint> training;
  for (int i = 1; i <= 10'000; ++i) training.push_back({double(i), 1 + 1.0 / i + (i % 2)});
  const auto lines = Lines(PlotLosses(training, {}, {.columns = 60, .rows = 8, .utf8 = false}));
  ASSERT_EQ(lines.size(), 11u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60u) << line;
  size_t marks = 0;
  for (size_t i = 1; i <= 8; ++i)
    marks += size_t(std::count(lines[i].begin(), lines[i].end(), '*'));
  EXPECT_EQ(marks, 50u);  // One a column.
}

TEST(Plot, LeavesOutWhatIsNotFinite) {
  const auto style = PlotStyle{.columns = 40, .rows = 4, .utf8 = false};
  EXPECT_EQ(PlotLosses({{1, 2}, {2, std::nan("")}, {3, 1}}, {{2, INFINITY}}, style),
            PlotLosses({{1, 2}, {3, 1}}, {}, style));
  EXPECT_EQ(PlotLosses({{1, std::nan("")}}, {}, style), "no step with a finite loss to plot\n");
  EXPECT_EQ(PlotLosses({}, {}, style), "no step with a finite loss to plot\n");
}

TEST(Plot, EqualLossesAndASingleStepAreALine) {
  EXPECT_EQ(
      Lines(PlotLosses({{1, 2}, {2, 2}}, {}, {.columns = 40, .rows = 4, .utf8 = false})).size(),
      7u);
  EXPECT_EQ(Lines(PlotLosses({{7, 2}}, {}, {.columns = 40, .rows = 4, .utf8 = false})).size(), 7u);
}

TEST(Plot, DrawsWithUnicodeWhereTheTerminalCan) {
  const std::string picture =
      PlotLosses({{1, 2}, {2, 1}}, {{2, 1.5}}, {.columns = 40, .rows = 4, .utf8 = true});
  EXPECT_THAT(picture, ::testing::HasSubstr("┤•"));
  EXPECT_THAT(picture, ::testing::HasSubstr("◆ validation"));
}

}  // namespace
}  // namespace trainyard::cli
