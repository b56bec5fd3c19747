// Draws losses over steps as a small picture of text.

#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

struct PlotPoint {
  double step = 0;
  double loss = 0;
};

struct PlotStyle {
  int columns = 80;   // Of the whole picture; at least 30.
  int rows = 16;      // Of the plotting area; at least 4.
  bool utf8 = false;  // Draw with dots and blocks instead of ASCII.
};

// Draws the training loss (the mean of the steps that share a column) and the validation loss, with
// axes and a legend. Leaves out points that are not finite, and says so if none is left. Ends with
// a line break.
std::string PlotLosses(const std::vector<PlotPoint>& training,
                       const std::vector<PlotPoint>& validation, const PlotStyle& style);

}  // namespace trainyard::cli
