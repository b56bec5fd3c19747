#include "controller/page/words.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainyard::controller {
namespace {

Html Sign(absl::string_view kind, absl::string_view name) {
  Html html;
  html << "<span class=\"sign "_html << kind << "\">"_html << name << "</span>"_html;
  return html;
}

}  // namespace

std::string CountWords(double count) {
  if (!std::isfinite(count)) return kUnknown;
  const char* const kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  while (std::fabs(count) >= 999.5 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  if (unit == 0) return absl::StrFormat("%.0f", count);
  return absl::StrFormat("%.3g%s", count, kUnits[unit]);
}

std::string NumberWords(std::optional<double> value) {
  return value && std::isfinite(*value) ? absl::StrFormat("%.4g", *value) : kUnknown;
}

std::string BytesWords(uint64_t bytes) {
  const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = double(bytes);
  size_t unit = 0;
  while (size >= 999.5 && unit + 1 < std::size(kUnits)) size /= 1024, ++unit;
  return absl::StrFormat("%.3g %s", size, kUnits[unit]);
}

std::string DurationWords(absl::Duration duration) {
  if (duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) return kUnknown;
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return absl::StrFormat("%d s", whole);
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %02d h", whole / 86400, whole / 3600 % 24);
}

std::string PercentWords(std::optional<double> ratio) {
  if (!ratio || !std::isfinite(*ratio)) return kUnknown;
  return absl::StrFormat("%.1f %%", 100 * *ratio);
}

std::string TimeWords(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

Html AgeWords(absl::Time time, absl::Time now) {
  // Rounds down to the largest unit, because the page is older when somebody reads it.
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(now - time));
  Html html;
  html << "<time title=\""_html << TimeWords(time) << "\">"_html;
  if (seconds < 60) {
    html << seconds << " s ago"_html;
  } else if (seconds < 3600) {
    html << seconds / 60 << " min ago"_html;
  } else if (seconds < 86400) {
    html << seconds / 3600 << " h ago"_html;
  } else {
    html << seconds / 86400 << " d ago"_html;
  }
  html << "</time>"_html;
  return html;
}

Html StateSign(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return Sign("waits", "queued");
    case JobState::kStarting:
      return Sign("moves", "starting");
    case JobState::kRunning:
      return Sign("moves", "running");
    case JobState::kRecovering:
      return Sign("warns", "recovering");
    case JobState::kStopping:
      return Sign("warns", "stopping");
    case JobState::kSucceeded:
      return Sign("good", "succeeded");
    case JobState::kFailed:
      return Sign("bad", "failed");
    case JobState::kCancelled:
      return Sign("over", "cancelled");
  }
  return Sign("over", "unknown");
}

Html StateSign(WorkerState state) {
  switch (state) {
    case WorkerState::kReady:
      return Sign("good", "ready");
    case WorkerState::kLost:
      return Sign("bad", "lost");
    case WorkerState::kDraining:
      return Sign("warns", "draining");
  }
  return Sign("over", "unknown");
}

absl::string_view Name(RankPhase phase) {
  constexpr absl::string_view kNames[] = {"ordered", "starting", "ready", "exited", "lost"};
  return size_t(phase) < std::size(kNames) ? kNames[size_t(phase)] : "unknown";
}

absl::string_view Name(ExitCause cause) {
  constexpr absl::string_view kNames[] = {
      "",          "completed",         "stopped", "bad input", "loss not finite",
      "peer lost", "device error",      "signal",  "other",     "hung",
      "storage",   "superseded attempt"};
  return size_t(cause) < std::size(kNames) ? kNames[size_t(cause)] : "unknown";
}

std::string MfuWords(std::optional<double> mfu, double peak_flops) {
  if (!mfu || !(*mfu > 1)) return PercentWords(mfu);
  return absl::StrCat(PercentWords(mfu), ": the devices' peak",
                      peak_flops > 0 ? absl::StrCat(" of ", CountWords(peak_flops), " FLOP/s") : "",
                      " is too low");
}

std::string StepWords(const Job& job) {
  const uint64_t step = job.progress.step;
  std::string words = absl::StrCat(step, " / ", job.spec->facts.steps);
  if (!WaitsForAttempt(job.state) || step == 0) return words;
  if (job.state == JobState::kRecovering) {
    return absl::StrCat(words, ", reached by attempt ", job.epoch);
  }
  return job.resumed_step ? absl::StrCat(words, ", where attempt ", job.epoch, " goes on")
                          : absl::StrCat(words, ", reached before attempt ", job.epoch);
}

Html ProgressBar(uint64_t step, uint64_t steps) {
  Html html;
  html << "<progress max=\""_html << std::max<uint64_t>(steps, 1) << "\" value=\""_html
       << std::min(step, steps) << "\"></progress>"_html;
  return html;
}

std::string Plural(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace trainyard::controller
