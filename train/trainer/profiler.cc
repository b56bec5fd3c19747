#include "train/trainer/profiler.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files.h"
#include "common/log.h"

namespace trainyard {
namespace {

// The meaning of Span::index.
const char* IndexName(Track track) {
  switch (track) {
    case Track::kSteps:
      return "step";
    case Track::kActions:
      return "micro_batch";
    case Track::kCompute:
    case Track::kCommunication:
      return "slot";
  }
  return "";
}

// The viewers' unit is the microsecond.
void AppendMicroseconds(std::string& out, int64_t ns) {
  absl::StrAppendFormat(&out, "%d.%03d", ns / 1000, ns % 1000);
}

void AppendName(std::string& out, const char* kind, int64_t rank, size_t track,
                absl::string_view name) {
  absl::StrAppend(&out, R"({"ph":"M","name":")", kind, R"(","pid":)", rank, R"(,"tid":)", track,
                  R"(,"args":{"name":")", name, "\"}},\n");
}

void AppendSpan(std::string& out, const Span& span, Track track, int64_t rank, int64_t offset) {
  absl::StrAppend(&out, R"({"ph":"X","name":")", span.name, R"(","cat":")", span.label,
                  R"(","pid":)", rank, R"(,"tid":)", size_t(track), R"(,"ts":)");
  AppendMicroseconds(out, span.begin_ns + offset);
  absl::StrAppend(&out, R"(,"dur":)");
  AppendMicroseconds(out, span.end_ns - span.begin_ns);
  absl::StrAppend(&out, R"(,"args":{)");
  const char* comma = "";
  const auto add = [&](const char* name, int64_t value) {
    if (value < 0) return;
    absl::StrAppend(&out, comma, "\"", name, "\":", value);
    comma = ",";
  };
  add("block", span.block);
  add("chunk", span.chunk);
  add(IndexName(track), span.index);
  absl::StrAppend(&out, "}},\n");
}

}  // namespace

std::string ToChromeTrace(const Timeline& timeline, int64_t rank) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const int64_t since_1970 =
      std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - Timeline::Now();
  int64_t first = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kTracks; ++i) {
    for (const Span& span : timeline.spans(Track(i))) first = std::min(first, span.begin_ns);
  }
  constexpr int64_t kDay = 24 * 3600 * int64_t{1'000'000'000};
  const int64_t origin = (since_1970 + first) / kDay * kDay;
  const int64_t offset = since_1970 - origin;
  std::string out = absl::StrCat(
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"origin_unix_seconds\":", origin / 1'000'000'000,
      "},\"traceEvents\":[\n");
  for (size_t i = 0; i < kTracks; ++i) {
    const Track track = Track(i);
    AppendName(out, "thread_name", rank, i, Name(track));
    for (const Span& span : timeline.spans(track)) AppendSpan(out, span, track, rank, offset);
  }
  AppendName(out, "process_name", rank, 0, absl::StrCat("rank ", rank));
  out.resize(out.size() - 2);  // The last comma.
  return absl::StrCat(out, "\n]}\n");
}

bool Traces(const JobConfig& job, int64_t rank) {
  if (!job.profile) return false;
  const std::vector<int64_t>& ranks = job.profile->ranks;
  return ranks.empty() ? rank == 0 : std::count(ranks.begin(), ranks.end(), rank) > 0;
}

std::string TracePrefix(const std::string& directory, const RankConfig& rank) {
  return absl::StrCat(directory, "/", rank.job_id, "-epoch-", rank.epoch, "-rank-", rank.rank, "-");
}

Profiler::Profiler(const ProfileConfig& profile, const RankConfig& rank,
                   const std::string& directory, Executable& executable)
    : first_(profile.start_step),
      last_(profile.start_step + profile.steps - 1),
      rank_(rank.rank),
      path_(TracePrefix(directory, rank) + "step-"),
      executable_(executable) {}

Profiler::~Profiler() { Write(); }

void Profiler::BeginStep(int64_t step) {
  if (step < first_ || step > last_) return;
  executable_.set_timeline(&timeline_);
  if (!started_) Start();
  step_ = {.name = "step", .index = step, .begin_ns = Timeline::Now()};
  range_.emplace(timeline_, Track::kSteps, step_);
}

void Profiler::EndStep(int64_t step) {
  if (executable_.timeline() == nullptr) return;
  executable_.set_timeline(nullptr);
  range_.reset();
  step_.end_ns = Timeline::Now();
  timeline_.Add(Track::kSteps, step_);
  if (step == last_) Write();
}

// All earlier work on the device is done: set_timeline has waited for it.
void Profiler::Start() {
  started_ = true;
  const absl::Status status = executable_.backend().StartProfiler();
  if (!status.ok()) LogWarning("profiler_not_started", {{"error", status.message()}});
}

void Profiler::Write() {
  executable_.set_timeline(nullptr);
  range_.reset();  // If a step failed.
  if (std::exchange(started_, false)) executable_.backend().StopProfiler();
  const std::vector<Span>& steps = timeline_.spans(Track::kSteps);
  if (steps.empty()) return;
  const std::string path = absl::StrCat(path_, steps.front().index, ".json");
  const absl::Status written = WriteFileAtomic(path, ToChromeTrace(timeline_, rank_));
  if (written.ok()) {
    LogInfo("trace_written", {{"path", path}});
  } else {
    LogWarning("trace_not_written", {{"path", path}, {"error", written.message()}});
  }
  timeline_ = {};
}

}  // namespace trainyard
