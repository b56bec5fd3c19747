#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainyard::cli {
namespace {

constexpr int kLabelWidth = 8;  // "  1.234 " before the axis.

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Returns the cell of `value`, from 0 to cells - 1.
  int Cell(double value, int cells) const {
    if (high <= low) return 0;
    return std::clamp(int(std::lround((value - low) / (high - low) * (cells - 1))), 0, cells - 1);
  }
};

std::vector<PlotPoint> Finite(const std::vector<PlotPoint>& points) {
  std::vector<PlotPoint> kept;
  for (const PlotPoint& point : points) {
    if (std::isfinite(point.loss)) kept.push_back(point);
  }
  return kept;
}

// Reduces the points to one for each column: the mean of those in the column.
std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, const Range& steps,
                               int columns) {
  const size_t cells = size_t(columns);
  std::vector<PlotPoint> sums(cells);
  std::vector<int> counts(cells);
  for (const PlotPoint& point : points) {
    const size_t column = size_t(steps.Cell(point.step, columns));
    sums[column].step += point.step;
    sums[column].loss += point.loss;
    ++counts[column];
  }
  std::vector<PlotPoint> means;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (counts[i] != 0) means.push_back({sums[i].step / counts[i], sums[i].loss / counts[i]});
  }
  return means;
}

class Canvas {
 public:
  Canvas(int rows, int columns) : cells_(size_t(rows), std::string(size_t(columns), ' ')) {}
  void Mark(int row_from_bottom, int column, char mark) {
    cells_[cells_.size() - 1 - size_t(row_from_bottom)][size_t(column)] = mark;
  }
  const std::string& Row(size_t from_top) const { return cells_[from_top]; }

 private:
  std::vector<std::string> cells_;
};

std::string Drawn(const std::string& row, bool utf8) {
  std::string line = row;
  line.erase(line.find_last_not_of(' ') + 1);
  if (!utf8) return line;
  std::string drawn;
  for (const char c : line) {
    absl::StrAppend(&drawn, c == '*' ? "•" : c == 'o' ? "◆" : std::string(1, c));
  }
  return drawn;
}

}  // namespace

std::string PlotLosses(const std::vector<PlotPoint>& all_training,
                       const std::vector<PlotPoint>& all_validation, const PlotStyle& style) {
  const std::vector<PlotPoint> finite = Finite(all_training), validation = Finite(all_validation);
  if (finite.empty()) return "no step with a finite loss to plot\n";
  const int columns = std::max(style.columns, 30) - kLabelWidth - 2, rows = std::max(style.rows, 4);

  Range steps, losses;
  for (const PlotPoint& point : finite) steps.Add(point.step);
  const std::vector<PlotPoint> training = Thinned(finite, steps, columns);
  for (const PlotPoint& point : training) losses.Add(point.loss);
  for (const PlotPoint& point : validation) losses.Add(point.loss);

  Canvas canvas(rows, columns);
  const auto mark = [&](const PlotPoint& point, char c) {
    canvas.Mark(losses.Cell(point.loss, rows), steps.Cell(point.step, columns), c);
  };
  for (const PlotPoint& point : training) mark(point, '*');
  for (const PlotPoint& point : validation) mark(point, 'o');

  std::string picture = absl::StrFormat(
      "loss    %s training%s\n", style.utf8 ? "•" : "*",
      validation.empty() ? "" : absl::StrCat("  ", style.utf8 ? "◆" : "o", " validation"));
  for (int row = 0; row < rows; ++row) {
    const double value = losses.high - (losses.high - losses.low) * row / (rows - 1);
    const bool labelled = row % 5 == 0 || row == rows - 1;
    absl::StrAppend(&picture, labelled ? absl::StrFormat("%7.4g ", value) : "        ",
                    style.utf8 ? (labelled ? "┤" : "│") : (labelled ? "+" : "|"),
                    Drawn(canvas.Row(size_t(row)), style.utf8), "\n");
  }
  absl::StrAppend(&picture, std::string(kLabelWidth, ' '), style.utf8 ? "└" : "+");
  for (int i = 0; i < columns; ++i) picture += style.utf8 ? "─" : "-";
  const std::string first = absl::StrCat("step ", steps.low), last = absl::StrCat(steps.high);
  const int gap = columns + 1 - int(first.size()) - int(last.size());
  absl::StrAppend(&picture, "\n", std::string(kLabelWidth, ' '), first,
                  std::string(size_t(std::max(gap, 1)), ' '), last, "\n");
  return picture;
}

}  // namespace trainyard::cli
