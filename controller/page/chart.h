// Draws curves over steps as SVG inside a page. The curve is stretched to the width of the page,
// and its numbers are text of the page, so that both can be read on a phone.

#pragma once

#include <string>
#include <vector>

#include "controller/page/html.h"

namespace trainyard::controller {

struct Point {
  double x = 0;
  double y = 0;  // Not finite: the line has a gap here.
};

struct Curve {
  std::string name;
  std::vector<Point> points;  // Sorted by x.
  bool dots = false;          // Single measurements, joined by a thin line.
};

struct Chart {
  std::string title;
  std::string note;           // Beside the title.
  std::vector<Curve> curves;  // The first two have colours of their own.
  bool from_zero = false;     // The y axis begins at 0.
};

// Returns an empty text if no point is finite.
Html Draw(const Chart& chart);

// Returns 3 to 6 round numbers at equal distances that enclose `low` and `high`.
std::vector<double> Ticks(double low, double high);

}  // namespace trainyard::controller
