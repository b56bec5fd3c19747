#include "controller/store/sqlite_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {

constexpr char kStepColumns[] =
    "SELECT step, epoch, complete, loss, grad_norm, learning_rate, tokens, seconds, data, forward, "
    "backward, grad_sync, optimizer, pipeline_bubble, checkpoint, mfu, validation_loss, "
    "finish_time, skipped, model_flops, ranks_seen, load_balancing_loss, "
    "gpu_utilization, gpu_power_watts, gpu_sm_clock_hertz, gpu_temperature_celsius, "
    "gpu_throttle_reasons FROM steps ";

// Of one gap in a job's steps.
constexpr uint64_t kMostMissing = 65'536;

StepRecord StepOf(const Statement& row) {
  StepRecord r;
  r.step = uint64_t(row.Int(0));
  r.epoch = uint64_t(row.Int(1));
  r.complete = row.Int(2) != 0;
  r.loss = row.Real(3);
  r.grad_norm = row.Real(4);
  r.learning_rate = row.Real(5);
  r.tokens = uint64_t(row.Int(6));
  r.seconds = row.Real(7);
  for (int i = 0; i < kNumPhases; ++i) r.phases[size_t(i)] = row.Real(8 + i);
  if (!row.IsNull(15)) r.mfu = row.Real(15);
  if (!row.IsNull(16)) r.validation_loss = row.Real(16);
  r.finish_time = absl::FromUnixMicros(row.Int(17));
  r.skipped = row.Int(18) != 0;
  r.model_flops = row.Real(19);
  r.ranks_seen = row.Text(20);
  if (!row.IsNull(21)) r.load_balancing_loss = row.Real(21);
  if (!row.IsNull(22)) r.gpu.utilization = row.Real(22);
  if (!row.IsNull(23)) r.gpu.power_watts = row.Real(23);
  if (!row.IsNull(24)) r.gpu.sm_clock_hertz = row.Real(24);
  if (!row.IsNull(25)) r.gpu.temperature_celsius = row.Real(25);
  if (!row.IsNull(26)) r.gpu.throttle_reasons = absl::StrSplit(row.Text(26), ',');
  return r;
}

}  // namespace

absl::StatusOr<std::vector<StoredJob>> SqliteReader::ReadJobs(Statement statement) {
  std::vector<StoredJob> jobs;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, statement.Next());
    if (!row) return jobs;
    jobs.push_back({uint64_t(statement.Int(0)), JobState(statement.Int(1)), statement.Text(2),
                    statement.Text(3), statement.Text(4), statement.Text(5)});
  }
}

absl::StatusOr<std::vector<StepRecord>> SqliteReader::ReadSteps(Statement statement) {
  std::vector<StepRecord> steps;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, statement.Next());
    if (!row) return steps;
    steps.push_back(StepOf(statement));
  }
}

absl::StatusOr<std::vector<StoredJob>> SqliteReader::LiveJobs() {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT * FROM jobs WHERE state < ? ORDER BY number"));
  select.Bind(1, int64_t(JobState::kSucceeded));
  return ReadJobs(std::move(select));
}

absl::StatusOr<StoredJob> SqliteReader::GetJob(uint64_t number) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select, database_.Prepare("SELECT * FROM jobs WHERE number = ?"));
  select.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, ReadJobs(std::move(select)));
  if (jobs.empty()) return absl::NotFoundError("no such job");
  return std::move(jobs.front());
}

absl::StatusOr<std::vector<StoredJob>> SqliteReader::ListJobs(uint64_t before,
                                                              const std::vector<JobState>& states,
                                                              size_t limit) {
  const auto number = [](std::string* out, JobState state) { absl::StrAppend(out, int(state)); };
  const std::string filter =
      states.empty() ? ""
                     : absl::StrCat(" AND state IN (", absl::StrJoin(states, ",", number), ")");
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat("SELECT * FROM jobs WHERE number < ?", filter,
                                                  " ORDER BY number DESC LIMIT ?")));
  select.Bind(1, before == 0 ? INT64_MAX : int64_t(before)).Bind(2, int64_t(limit));
  return ReadJobs(std::move(select));
}

absl::StatusOr<uint64_t> SqliteReader::FindRequest(const std::string& request_id) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT number FROM requests WHERE request_id = ?"));
  select.BindText(1, request_id);
  ASSIGN_OR_RETURN(const bool row, select.Next());
  if (!row) return absl::NotFoundError("no such request");
  return uint64_t(select.Int(0));
}

absl::StatusOr<uint64_t> SqliteReader::NewestJob() {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const int64_t number, database_.QueryInt("SELECT max(number) FROM jobs"));
  return uint64_t(number);
}

absl::StatusOr<std::vector<uint64_t>> SqliteReader::CountByState() {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT state, count(*) FROM jobs GROUP BY state"));
  std::vector<uint64_t> counts(kNumJobStates + 1);
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return counts;
    const size_t state = size_t(select.Int(0));
    if (state < counts.size()) counts[state] = uint64_t(select.Int(1));
  }
}

absl::StatusOr<std::vector<EventRecord>> SqliteReader::ReadEvents(uint64_t number) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(
          "SELECT time, type, epoch, message FROM events WHERE number = ? ORDER BY n"));
  select.Bind(1, int64_t(number));
  std::vector<EventRecord> events;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return events;
    events.push_back({absl::FromUnixMicros(select.Int(0)), EventType(select.Int(1)),
                      uint64_t(select.Int(2)), select.Text(3)});
  }
}

absl::StatusOr<std::vector<StepRecord>> SqliteReader::OpenSteps(uint64_t number) {
  std::lock_guard lock(mutex_);
  // Steps of earlier attempts beyond the newest step of the newest attempt will be run again.
  ASSIGN_OR_RETURN(Statement newest,
                   database_.Prepare("SELECT max(step) FROM steps WHERE number = ?1 AND epoch = "
                                     "(SELECT max(epoch) FROM steps WHERE number = ?1)"));
  newest.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(const bool any, newest.Next());
  if (!any || newest.IsNull(0)) return std::vector<StepRecord>();
  const int64_t last = newest.Int(0);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(
          kStepColumns, "WHERE number = ?1 AND step <= ?2 AND (NOT complete OR step = ?2)")));
  select.Bind(1, int64_t(number)).Bind(2, last);
  ASSIGN_OR_RETURN(std::vector<StepRecord> steps, ReadSteps(std::move(select)));
  RETURN_IF_ERROR(AddMissing(number, uint64_t(last), steps));
  return steps;
}

absl::Status SqliteReader::AddMissing(uint64_t number, uint64_t newest,
                                      std::vector<StepRecord>& steps) {
  ASSIGN_OR_RETURN(
      Statement gaps,
      database_.Prepare(
          "SELECT before, step FROM (SELECT step, lag(step, 1, 0) OVER (ORDER BY step) "
          "AS before FROM steps WHERE number = ? AND step <= ?) WHERE step > before + 1 "
          "ORDER BY step"));
  gaps.Bind(1, int64_t(number)).Bind(2, int64_t(newest));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, gaps.Next());
    if (!row) return absl::OkStatus();
    const uint64_t before = uint64_t(gaps.Int(0)), step = uint64_t(gaps.Int(1));
    // What is older than the history that is kept has been forgotten on purpose.
    if (step - before > kMostMissing) continue;
    for (uint64_t missing = before + 1; missing < step; ++missing) {
      steps.emplace_back().step = missing;
    }
  }
}

absl::StatusOr<StepRecord> SqliteReader::LastStep(uint64_t number, uint64_t epoch) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(kStepColumns,
                                     "WHERE number = ? AND epoch = ? AND complete AND NOT skipped "
                                     "ORDER BY step DESC LIMIT 1")));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(epoch));
  ASSIGN_OR_RETURN(const bool row, select.Next());
  if (!row) return absl::NotFoundError("no finished step");
  return StepOf(select);
}

absl::StatusOr<double> SqliteReader::SumStepSeconds(uint64_t number) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(
          "SELECT total(seconds) FROM steps WHERE number = ? AND complete AND NOT skipped"));
  select.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(const bool row, select.Next());
  return row ? select.Real(0) : 0.0;
}

absl::StatusOr<std::vector<StepRecord>> SqliteReader::ReadSteps(uint64_t number,
                                                                uint64_t after_step, size_t limit) {
  std::lock_guard lock(mutex_);
  // Reports of a rank arrive in step order, so what is incomplete below the newest complete step
  // lost its report for good (a machine died) and is shown as it is.
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(
          kStepColumns,
          "WHERE number = ?1 AND step > ?2 AND step <= (SELECT step FROM steps WHERE "
          "number = ?1 AND complete ORDER BY step DESC LIMIT 1) ORDER BY step LIMIT ?3")));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(after_step)).Bind(3, int64_t(limit));
  return ReadSteps(std::move(select));
}

absl::StatusOr<Store::LogPage> SqliteReader::ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                                      size_t limit) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT n, time, epoch, rank, text FROM logs WHERE number = ? "
                                     "AND n > ? AND (? < 0 OR rank = ?) ORDER BY n LIMIT ?"));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(after)).Bind(3, rank).Bind(4, rank);
  select.Bind(5, int64_t(limit));
  Store::LogPage page{.lines = {}, .last = after};
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return page;
    page.last = uint64_t(select.Int(0));
    page.lines.push_back({absl::FromUnixMicros(select.Int(1)), uint64_t(select.Int(2)),
                          uint32_t(select.Int(3)), select.Text(4)});
  }
}

}  // namespace trainyard::controller
