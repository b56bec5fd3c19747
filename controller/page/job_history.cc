// Draws the history of a job: loss, speed, the parts of a step's time, and attempts.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "controller/page/chart.h"
#include "controller/page/views.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

constexpr size_t kMostEvents = 100;

absl::string_view EventName(EventType type) {
  constexpr absl::string_view kNames[] = {"",
                                          "submitted",
                                          "placed",
                                          "running",
                                          "checkpointed",
                                          "rank exited",
                                          "worker lost",
                                          "recovering",
                                          "cancel requested",
                                          "finished",
                                          "warning"};
  return size_t(type) < std::size(kNames) ? kNames[size_t(type)] : "other";
}

Curve CurveOf(std::string name, const std::vector<JobStep>& steps,
              double (*value)(const JobStep&)) {
  Curve curve{.name = std::move(name), .points = {}};
  for (const JobStep& step : steps) curve.points.push_back({double(step.step), value(step)});
  return curve;
}

double TokensPerSecond(const JobStep& step) {
  return step.seconds > 0 ? double(step.tokens) / step.seconds : NAN;
}

// Returns the event that says what became of the attempt, or null if it has none. The events of its
// end have the job's own reason, which names the cause. After these events there are only reports
// of ranks that lost their peer, or were stopped for the failure of another.
const EventRecord* TellingEvent(uint64_t epoch, const std::vector<EventRecord>& events) {
  const EventRecord *last = nullptr, *end = nullptr;
  for (const EventRecord& event : events) {
    if (event.epoch != epoch || event.type == EventType::kCheckpointed) continue;
    last = &event;
    const bool ends = event.type == EventType::kRecovering || event.type == EventType::kFinished;
    if (ends) end = &event;
  }
  return end != nullptr ? end : last;
}

void Attempt(Html& html, const Job& job, uint64_t epoch, const std::vector<EventRecord>& events) {
  uint64_t from = 0;
  for (const Resume& resume : job.resumes) {
    if (resume.epoch == epoch) from = resume.step;
  }
  const auto placed = std::find_if(events.begin(), events.end(), [&](const EventRecord& event) {
    return event.epoch == epoch && event.type == EventType::kPlaced;
  });
  const EventRecord* const last = TellingEvent(epoch, events);
  html << "<tr><td>"_html << epoch << "</td><td>"_html
       << (placed == events.end() ? kUnknown : TimeWords(placed->time)) << "</td><td>"_html << from
       << "</td><td>"_html << (last == nullptr ? kUnknown : EventName(last->type))
       << "</td><td>"_html << (last == nullptr ? "" : last->message) << "</td></tr>"_html;
}

}  // namespace

Html HistoryOf(const Job& job, const std::vector<JobStep>& steps,
               const std::vector<JobStep>& validations) {
  Html html;
  if (steps.empty()) return html;
  const uint64_t whole = steps.back().step - steps.front().step + 1;
  const std::string note =
      steps.size() < whole ? absl::StrCat(steps.size(), " of ", whole, " steps") : "";
  Chart loss{.title = "Loss", .note = note, .curves = {}};
  loss.curves.push_back(CurveOf("training", steps, [](const JobStep& s) { return s.loss; }));
  if (!validations.empty()) {
    loss.curves.push_back(
        CurveOf("validation", validations, [](const JobStep& s) { return *s.validation_loss; }));
    loss.curves.back().dots = true;
  }
  Chart speed{.title = "Tokens per second", .note = note, .curves = {}, .from_zero = true};
  speed.curves.push_back(CurveOf(absl::StrCat("all ", Plural(job.spec->facts.ranks, "rank")), steps,
                                 &TokensPerSecond));
  html << "<div class=\"charts\">"_html << Draw(loss) << Draw(speed) << "</div>"_html;
  return html;
}

Html GeneratedOf(const std::vector<JobStep>& validations) {
  Html html;
  if (validations.empty() || validations.back().generated.empty()) return html;
  html << "<section><h2>What the model writes</h2><p class=\"note\">After step "_html
       << validations.back().step << "</p>"_html;
  for (const auto& [prompt, text] : validations.back().generated) {
    html << "<pre><b>"_html << prompt << "</b>"_html << text << "</pre>"_html;
  }
  html << "</section>"_html;
  return html;
}

Html PhasesOf(const std::vector<JobStep>& recent) {
  constexpr size_t kHost = kPhases.size();
  std::array<double, kHost + 1> seconds = {};
  for (const JobStep& step : recent) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      const PhaseSeconds& phases = step.phases;
      const double found = i == kHost ? phases.host(step.seconds) : phases.*kPhases[i].seconds;
      if (std::isfinite(found)) seconds[i] += std::max(0.0, found);
    }
  }
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  Html html;
  if (!(sum > 0)) return html;
  html << "<section><h2>Where a step\u2019s time goes</h2>"_html
       << "<p class=\"note\">The slowest rank, mean of the last "_html
       << Plural(recent.size(), "step") << "</p><svg class=\"bar\" viewBox=\"0 0 100 4\" "_html
       << "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Phases\">"_html;
  double before = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const double share = 100 * seconds[i] / sum;
    html << "<rect class=\"p"_html << i << "\" x=\""_html << absl::StrFormat("%.3f", before)
         << "\" width=\""_html << absl::StrFormat("%.3f", share) << "\" height=\"4\"/>"_html;
    before += share;
  }
  html << "</svg><ul class=\"keys\">"_html;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] <= 0) continue;
    const double mean = seconds[i] / double(recent.size());
    html << "<li><svg class=\"swatch\" viewBox=\"0 0 1 1\"><rect class=\"p"_html << i
         << "\" width=\"1\" height=\"1\"/></svg>"_html
         << absl::StrReplaceAll(i == kHost ? "host" : kPhases[i].name, {{"_", " "}}) << " <b>"_html
         << PercentWords(seconds[i] / sum) << "</b> <span class=\"note\">"_html
         << absl::StrFormat("%.3g ms", 1000 * mean) << "</span></li>"_html;
  }
  html << "</ul></section>"_html;
  return html;
}

Html AttemptsOf(const Job& job, const std::vector<EventRecord>& events) {
  Html html;
  if (job.epoch > 0) {
    html << "<section><h2>Attempts</h2><div class=\"scroll\">"_html
         << "<table><thead><tr><th>Attempt<th>Placed"_html
         << "<th>From step<th>Last<th>What happened</tr></thead><tbody>"_html;
    const uint64_t first = job.epoch > 20 ? job.epoch - 19 : 1;
    for (uint64_t epoch = job.epoch; epoch >= first; --epoch) Attempt(html, job, epoch, events);
    html << "</tbody></table></div></section>"_html;
  }
  html << "<section><h2>Events</h2>"_html;
  if (events.size() > kMostEvents) {
    html << "<p class=\"note\">The newest "_html << kMostEvents << " of "_html << events.size()
         << "</p>"_html;
  }
  html << "<div class=\"scroll tall\">"_html
       << "<table><thead><tr><th>Time<th>Event<th>Attempt<th>What happened"_html
       << "</tr></thead><tbody>"_html;
  size_t shown = 0;
  for (auto event = events.rbegin(); event != events.rend() && shown < kMostEvents; ++event) {
    html << "<tr><td>"_html << TimeWords(event->time) << "</td><td>"_html << EventName(event->type)
         << "</td><td>"_html << event->epoch << "</td><td>"_html << event->message
         << "</td></tr>"_html;
    ++shown;
  }
  html << "</tbody></table></div></section>"_html;
  return html;
}

}  // namespace trainyard::controller
