// Losses over steps as a small picture of text.

#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

struct PlotPoint {
  double step = 0;
  double loss = 0;
};

struct PlotStyle {
  int columns = 80;   // Of the whole picture, at least 30.
  int rows = 16;      // Of the plotting area, at least 4.
  bool utf8 = false;  // Dots and blocks; otherwise ASCII.
};

// Training loss (the mean of the steps that share a column) and validation loss, with axes and a
// legend. Points that are not finite are left out. Says so where nothing is left. Ends with a line
// break.
std::string PlotLosses(const std::vector<PlotPoint>& training,
                       const std::vector<PlotPoint>& validation, const PlotStyle& style);

}  // namespace trainyard::cli
