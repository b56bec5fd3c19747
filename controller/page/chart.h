// Lines over steps, as SVG within a page: the curve is stretched to the width that there is, and
// the numbers beside it are text of the page, so that both can be read on a phone.

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
  std::vector<Point> points;  // By growing x.
  bool dots = false;          // Single measurements, joined by a thin line.
};

struct Chart {
  std::string title;
  std::string note;           // Beside the title.
  std::vector<Curve> curves;  // The first two have colours of their own.
  bool from_zero = false;     // The axis of y begins there.
};

// Empty where no point is finite.
Html Draw(const Chart& chart);

// Round numbers that enclose `low` and `high`, at equal distances; 3 to 6 of them.
std::vector<double> Ticks(double low, double high);

}  // namespace trainyard::controller
