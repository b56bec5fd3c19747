#include "controller/page/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

// The drawing's own coordinates. They are finer than a screen's points, so nothing is lost.
constexpr double kWidth = 1000;
constexpr double kHeight = 400;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // The position of `value`, from 0 to 1. If all values are the same, it is in the middle.
  double Share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

struct Frame {
  Range x, y;

  std::string At(const Point& point) const {
    return absl::StrFormat("%.1f %.1f", kWidth * x.Share(point.x),
                           kHeight * (1 - y.Share(point.y)));
  }
};

std::string LineOf(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  bool begun = false;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) {
      begun = false;
      continue;
    }
    absl::StrAppend(&path, begun ? "L" : "M", frame.At(point));
    begun = true;
  }
  return path;
}

// Draws dots as lines of zero length with round ends. They stay round when the drawing is
// stretched.
std::string DotsOf(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  for (const Point& point : points) {
    if (std::isfinite(point.y)) absl::StrAppend(&path, "M", frame.At(point), "h0");
  }
  return path;
}

Html Drawing(const Chart& chart, const Frame& frame, const std::vector<double>& ticks) {
  Html svg;
  svg << "<svg viewBox=\"0 0 1000 400\" preserveAspectRatio=\"none\" role=\"img\""_html
      << " aria-label=\""_html << chart.title << "\"><path class=\"grid\" d=\""_html;
  for (const double tick : ticks) svg << "M"_html << frame.At({frame.x.low, tick}) << "H1000"_html;
  svg << "\"/>"_html;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    svg << "<path class=\"curve c"_html << i << (curve.dots ? " thin" : "") << "\" d=\""_html
        << LineOf(curve.points, frame) << "\"/>"_html;
    // A single point makes no line.
    if (curve.dots || curve.points.size() == 1) {
      svg << "<path class=\"dots c"_html << i << "\" d=\""_html << DotsOf(curve.points, frame)
          << "\"/>"_html;
    }
  }
  svg << "</svg>"_html;
  return svg;
}

}  // namespace

std::vector<double> Ticks(double low, double high) {
  if (!(high > low)) {
    const double margin = low == 0 ? 1 : std::fabs(low) * 0.1;
    high = low + margin;
    low -= margin;
  }
  const double rough = (high - low) / 4;
  const double unit = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * unit;
  for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
    if (factor * unit >= rough) step = factor * unit;
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  for (int i = 0; i < 8; ++i) {
    ticks.push_back((first + i) * step);
    if (ticks.back() >= high - step * 1e-9) break;
  }
  return ticks;
}

Html Draw(const Chart& chart) {
  Frame frame;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (!std::isfinite(point.y)) continue;
      frame.x.Include(point.x);
      frame.y.Include(point.y);
    }
  }
  if (frame.y.empty()) return Html();
  if (chart.from_zero) frame.y.Include(0);
  const std::vector<double> ticks = Ticks(frame.y.low, frame.y.high);
  frame.y = {ticks.front(), ticks.back()};
  Html html;
  html << "<figure class=\"chart\"><figcaption><b>"_html << chart.title << "</b>"_html;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    html << " <span class=\"key k"_html << i << "\">"_html << chart.curves[i].name
         << "</span>"_html;
  }
  html << " <span class=\"note\">"_html << chart.note
       << "</span></figcaption><div class=\"plot\"><div class=\"ys\">"_html;
  for (auto tick = ticks.rbegin(); tick != ticks.rend(); ++tick) {
    html << "<span>"_html << (std::fabs(*tick) >= 1000 ? CountWords(*tick) : NumberWords(*tick))
         << "</span>"_html;
  }
  html << "</div>"_html << Drawing(chart, frame, ticks) << "<div class=\"xs\">"_html;
  const double middle = (frame.x.low + frame.x.high) / 2;
  html << "<span>step "_html << CountWords(frame.x.low) << "</span>"_html;
  if (frame.x.high - frame.x.low >= 4)
    html << "<span>"_html << CountWords(middle) << "</span>"_html;
  if (frame.x.high > frame.x.low) {
    html << "<span>"_html << CountWords(frame.x.high) << "</span>"_html;
  }
  html << "</div></div></figure>"_html;
  return html;
}

}  // namespace trainyard::controller
