#include "tests/train/pipeline/draw.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/train/pipeline/simulate.h"

namespace trainyard::testing {
namespace {

// Pixels.
constexpr int kUnit = 24;  // Of time.
constexpr int kRow = 30;
constexpr int kLeft = 64;
constexpr int kTop = 34;
constexpr int kMaxUnits = 33;  // Of time; what the pictures of the documentation need.
constexpr int kRight = kLeft + kMaxUnits * kUnit;
constexpr int kWidth = kRight + 66;

constexpr const char* kStyle =
    "text { font: 12px sans-serif; fill: #222 } "
    "rect { stroke: #fff } "
    ".box { text-anchor: middle } .later { fill: #fff } "
    ".f0 { fill: #9ec5f0 } .f1 { fill: #2f6fb5 } "
    ".b0 { fill: #a5d8a2 } .b1 { fill: #3a8a36 } "
    ".i0 { fill: #a5d8a2 } .i1 { fill: #3a8a36 } "
    ".w0 { fill: #f2c277 } .w1 { fill: #b5701a }";

int Pixels(double time) { return int(time * kUnit + 0.5); }

std::string Text(int x, int y, absl::string_view text, absl::string_view attributes = "") {
  return absl::StrCat("<text x=\"", x, "\" y=\"", y, "\"", attributes, ">", text, "</text>\n");
}

std::string Box(const PipelineAction& action, const Simulation::Interval& time, int y) {
  const int shade = action.chunk % 2;
  const int x = kLeft + Pixels(time.start), width = Pixels(time.end) - Pixels(time.start);
  return absl::StrCat("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", kRow - 4,
                      "\" class=\"", std::string(1, "fbiw"[action.kind]), shade, "\"/>",
                      Text(x + width / 2, y + 17, absl::StrCat(action.micro_batch),
                           shade == 0 ? " class=\"box\"" : " class=\"box later\""));
}

std::string Legend(const ScheduleOptions& options, int y) {
  struct Entry {
    const char* shade;
    const char* meaning;
  };
  std::vector<Entry> entries = {{"f0", "forward"}, {"b0", "backward"}};
  if (options.kind->split_backward) {
    entries = {{"f0", "forward"}, {"i0", "backward of inputs"}, {"w0", "backward of weights"}};
    if (options.chunks > 1) entries.push_back({"f1", "darker: second chunk"});
  } else if (options.chunks > 1) {
    entries = {{"f0", "forward, first chunk"},
               {"f1", "second chunk"},
               {"b0", "backward, first chunk"},
               {"b1", "second chunk"}};
  }
  std::string out;
  int x = kLeft;
  for (const auto& [shade, meaning] : entries) {
    absl::StrAppend(&out, "<rect x=\"", x, "\" y=\"", y, "\" width=\"14\" height=\"14\" class=\"",
                    shade, "\"/>", Text(x + 20, y + 11, meaning));
    x += 160;
  }
  return out;
}

}  // namespace

std::string DrawSchedule(const PipelineSchedule& schedule) {
  const ScheduleOptions& o = schedule.options;
  const double unit = 1.0 / o.chunks;
  const auto simulation =
      Simulate(schedule, {.forward = unit, .backward_input = unit, .backward_weight = unit});
  CHECK(simulation.ok()) << simulation.status();
  CHECK(simulation->makespan <= kMaxUnits) << simulation->makespan;
  const int height = kTop + o.stages * kRow + 28;
  std::string out =
      absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", height,
                   "\" width=\"", kWidth, "\" height=\"", height, "\">\n<style>", kStyle,
                   "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                   Text(kLeft, 20,
                        absl::StrCat(o.kind->name, ": ", o.stages, " stages, ",
                                     o.chunks == 1 ? "" : absl::StrCat(o.chunks, " chunks each, "),
                                     o.micro_batches, " micro-batches; bubble ",
                                     100 * simulation->stages[0].bubble, " % of the ideal time")),
                   Text(kRight + 4, 20, "holds"));
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    const int y = kTop + int(s) * kRow;
    absl::StrAppend(
        &out, Text(8, y + 17, absl::StrCat("stage ", s)),
        Text(kRight + 4, y + 17, absl::StrCat(simulation->stages[s].peak_in_flight * unit)));
    for (size_t i = 0; i < schedule.stages[s].actions.size(); ++i) {
      absl::StrAppend(&out,
                      Box(schedule.stages[s].actions[i], simulation->stages[s].actions[i], y));
    }
  }
  absl::StrAppend(&out, Legend(o, kTop + o.stages * kRow + 4), "</svg>\n");
  return out;
}

}  // namespace trainyard::testing
