#include "controller/store/sqlite_reader.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "controller/store/row_checksum.h"
#include "controller/store/step_row.h"

namespace trainyard::controller {
namespace {

// SQLite's integers are signed. Nothing has a greater number than the greatest of them.
int64_t Cursor(uint64_t after) {
  return int64_t(std::min<uint64_t>(after, std::numeric_limits<int64_t>::max()));
}

std::string SelectJobs() {
  return absl::StrCat("SELECT number, state, spec, config, facts, body, ", kJobIsGood,
                      " FROM jobs ");
}

// The expression of the index jobs_by_namespace. Jobs that are older than namespaces are in the
// default namespace (JobFacts::name_space).
constexpr char kNamespaceOfJob[] =
    "CASE WHEN json_valid(facts) THEN coalesce(json_extract(facts, '$.namespace'), 'default') END";

// In one gap of a job's steps.
constexpr uint64_t kMostMissing = 65'536;

}  // namespace

absl::StatusOr<std::vector<StoredJob>> SqliteReader::ReadJobs(Statement statement) {
  std::vector<StoredJob> jobs;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, statement.Next());
    if (!row) return jobs;
    jobs.push_back({uint64_t(statement.Int(0)), JobState(statement.Int(1)), statement.Text(2),
                    statement.Text(3), statement.Text(4), statement.Text(5),
                    statement.Int(6) == 0});
  }
}

absl::StatusOr<std::vector<JobStep>> SqliteReader::ReadSteps(Statement statement, uint64_t number) {
  std::vector<JobStep> steps;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, statement.Next());
    if (!row) return steps;
    ASSIGN_OR_RETURN(steps.emplace_back(), StepOf(statement, number));
  }
}

absl::StatusOr<uint64_t> SqliteReader::CheckRequests() {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(
      const int64_t damaged,
      database_.QueryInt(
          absl::StrCat("SELECT count(*) FROM requests WHERE NOT ", kRequestIsGood).c_str()));
  return damaged_requests_ = uint64_t(damaged);
}

void SqliteReader::ForgetDamagedRequests() {
  MutexLock lock(mutex_);
  damaged_requests_ = 0;
}

absl::StatusOr<std::vector<StoredJob>> SqliteReader::LiveJobs() {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat(SelectJobs(), "WHERE state < ? OR NOT ",
                                                  kJobIsGood, " ORDER BY number")));
  select.Bind(1, int64_t(JobState::kSucceeded));
  return ReadJobs(std::move(select));
}

absl::StatusOr<StoredJob> SqliteReader::GetJob(uint64_t number) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat(SelectJobs(), "WHERE number = ?")));
  select.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, ReadJobs(std::move(select)));
  if (jobs.empty()) return absl::NotFoundError("no such job");
  if (jobs.front().damaged) return DamagedRow("jobs", number);
  return std::move(jobs.front());
}

std::string ListJobsSql(const JobFilter& filter) {
  // JSON is parsed only in rows whose text contains the name, because parsing takes most of the
  // time for 10,000 jobs.
  const std::string newest_first =
      absl::StrCat(filter.name.empty() ? ""
                                       : " CASE WHEN instr(facts, ?4) AND json_valid(facts) THEN "
                                         "instr(json_extract(facts, '$.name'), ?4) END AND",
                   " number < ?1 ORDER BY number DESC LIMIT ?2");
  if (filter.states.empty() && filter.name_space.empty()) {
    return absl::StrCat(SelectJobs(), "WHERE", newest_first);
  }
  const std::string of_namespace =
      filter.name_space.empty() ? "" : absl::StrCat(kNamespaceOfJob, " = ?3 AND ");
  std::set<JobState> states(filter.states.begin(), filter.states.end());
  for (int i = 1; filter.states.empty() && i <= kNumJobStates; ++i) states.insert(JobState(i));
  // Selects the newest of each state, from a sorted index, and then the newest of these. So only
  // wanted rows are read, however many jobs others have.
  const auto newest = [&](std::string* out, JobState state) {
    absl::StrAppend(out, "SELECT * FROM (SELECT number FROM jobs WHERE ", of_namespace,
                    "state = ", int(state), " AND", newest_first, ")");
  };
  return absl::StrCat(SelectJobs(), "WHERE number IN (",
                      absl::StrJoin(states, " UNION ALL ", newest),
                      ") ORDER BY number DESC LIMIT ?2");
}

absl::StatusOr<std::vector<StoredJob>> SqliteReader::ListJobs(const JobFilter& filter,
                                                              uint64_t before, size_t limit) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select, database_.Prepare(ListJobsSql(filter)));
  select.Bind(1, before == 0 ? INT64_MAX : int64_t(before)).Bind(2, int64_t(limit));
  if (!filter.name_space.empty()) select.BindText(3, filter.name_space);
  if (!filter.name.empty()) select.BindText(4, filter.name);
  return ReadJobs(std::move(select));
}

absl::StatusOr<uint64_t> SqliteReader::FindRequest(const std::string& request_id) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat("SELECT number, ", kRequestIsGood,
                                                  " FROM requests WHERE request_id = ?")));
  select.BindText(1, request_id);
  ASSIGN_OR_RETURN(const bool row, select.Next());
  if (row && select.Int(1) != 0) return uint64_t(select.Int(0));
  if (row) return DamagedRow("requests", uint64_t(select.Int(0)));
  if (damaged_requests_ == 0) return absl::NotFoundError("no such request");
  return absl::DataLossError(absl::StrCat(
      "the store is damaged: ", damaged_requests_,
      " rows of requests have the wrong checksum, and "
      "request_id ",
      request_id, " may be in one of them: accepting it could make the same job twice; ",
      kRestoreHint, "; or start it with --accept-loss to forget those request ids"));
}

absl::StatusOr<uint64_t> SqliteReader::NewestJob() {
  MutexLock lock(mutex_);
  // The number of a damaged row may be damaged, too.
  ASSIGN_OR_RETURN(const int64_t number,
                   database_.QueryInt(absl::StrCat("SELECT number FROM jobs WHERE ", kJobIsGood,
                                                   " ORDER BY number DESC LIMIT 1")
                                          .c_str()));
  return uint64_t(number);
}

absl::StatusOr<std::vector<uint64_t>> SqliteReader::CountByState() {
  MutexLock lock(mutex_);
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
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select, database_.Prepare(absl::StrCat(
                                         "SELECT time, type, epoch, message, ", kEventIsGood,
                                         " FROM events WHERE number = ? ORDER BY n")));
  select.Bind(1, int64_t(number));
  std::vector<EventRecord> events;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return events;
    if (select.Int(4) == 0) return DamagedRow("events", number);
    events.push_back({absl::FromUnixMicros(select.Int(0)), EventType(select.Int(1)),
                      uint64_t(select.Int(2)), select.Text(3)});
  }
}

absl::StatusOr<uint64_t> SqliteReader::NewestStep(uint64_t number,
                                                  const std::vector<Resume>& resumes) {
  // Steps of earlier attempts beyond the newest step of the newest attempt will be run again.
  ASSIGN_OR_RETURN(Statement newest,
                   database_.Prepare("SELECT epoch, max(step) FROM steps WHERE number = ?1 AND "
                                     "epoch = (SELECT max(epoch) FROM steps WHERE number = ?1)"));
  newest.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(const bool any, newest.Next());
  const bool told = any && !newest.IsNull(0);
  const uint64_t epoch = told ? uint64_t(newest.Int(0)) : 0;
  const uint64_t step = told ? uint64_t(newest.Int(1)) : 0;
  if (resumes.empty() || resumes.back().epoch < epoch) return step;
  return resumes.back().epoch > epoch ? resumes.back().step : std::max(step, resumes.back().step);
}

absl::StatusOr<std::vector<JobStep>> SqliteReader::OpenSteps(uint64_t number,
                                                             const std::vector<Resume>& resumes) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const uint64_t last, NewestStep(number, resumes));
  if (last == 0) return std::vector<JobStep>();
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(
          SelectSteps(), "WHERE number = ?1 AND step <= ?2 AND (NOT complete OR step = ?2)")));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(last));
  ASSIGN_OR_RETURN(std::vector<JobStep> steps, ReadSteps(std::move(select), number));
  RETURN_IF_ERROR(AddMissing(number, last, steps));
  RETURN_IF_ERROR(AddMoot(number, last, resumes, steps));
  return steps;
}

absl::Status SqliteReader::AddMissing(uint64_t number, uint64_t newest,
                                      std::vector<JobStep>& steps) {
  ASSIGN_OR_RETURN(
      Statement gaps,
      database_.Prepare("SELECT before, step FROM (SELECT step, lag(step, 1, 0) OVER (ORDER BY "
                        "step) AS before FROM (SELECT step FROM steps WHERE number = ?1 AND step "
                        "<= ?2 UNION ALL SELECT ?2 + 1)) WHERE step > before + 1 ORDER BY step"));
  gaps.Bind(1, int64_t(number)).Bind(2, int64_t(newest));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, gaps.Next());
    if (!row) return absl::OkStatus();
    uint64_t before = uint64_t(gaps.Int(0));
    const uint64_t step = uint64_t(gaps.Int(1));
    // Longer gaps are history that was removed to keep the limit. But the newest steps may all be
    // missing: an attempt resumed after them, and has not reported them yet.
    if (step - before > kMostMissing && step <= newest) continue;
    before = std::max(before, step - std::min(step, kMostMissing + 1));
    for (uint64_t missing = before + 1; missing < step; ++missing) {
      steps.emplace_back().step = missing;
    }
  }
}

absl::Status SqliteReader::AddMoot(uint64_t number, uint64_t newest,
                                   const std::vector<Resume>& resumes,
                                   std::vector<JobStep>& steps) {
  std::set<uint64_t> moot;
  for (size_t i = 0; i < resumes.size(); ++i) {
    ASSIGN_OR_RETURN(Statement select,
                     database_.Prepare("SELECT step FROM steps WHERE number = ? AND step > ? AND "
                                       "step <= ? AND epoch < ? ORDER BY step DESC LIMIT ?"));
    const uint64_t last = i + 1 < resumes.size() ? resumes[i + 1].step : newest;
    select.Bind(1, int64_t(number)).Bind(2, int64_t(resumes[i].step)).Bind(3, int64_t(last));
    select.Bind(4, int64_t(resumes[i].epoch)).Bind(5, int64_t(kMostMissing));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, select.Next());
      if (!row) break;
      moot.insert(uint64_t(select.Int(0)));
    }
  }
  std::erase_if(steps, [&](const JobStep& step) { return moot.contains(step.step); });
  for (const uint64_t step : moot) steps.emplace_back().step = step;
  return absl::OkStatus();
}

absl::StatusOr<JobStep> SqliteReader::LastStep(uint64_t number, uint64_t epoch) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(SelectSteps(),
                                     "WHERE number = ? AND epoch = ? AND complete AND NOT skipped "
                                     "ORDER BY step DESC LIMIT 1")));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(epoch));
  ASSIGN_OR_RETURN(const bool row, select.Next());
  if (!row) return absl::NotFoundError("no finished step");
  return StepOf(select, number);
}

absl::StatusOr<JobStep> SqliteReader::LastValidated(uint64_t number, uint64_t up_to,
                                                    const std::vector<Resume>& resumes) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(SelectSteps(),
                                     "WHERE number = ? AND step <= ? AND complete AND NOT skipped "
                                     "AND validation_loss IS NOT NULL ORDER BY step DESC")));
  select.Bind(1, int64_t(number)).Bind(2, int64_t(up_to));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return absl::NotFoundError("no validated step");
    ASSIGN_OR_RETURN(JobStep step, StepOf(select, number));
    if (SupersededBy(resumes, *step.epoch, step.step) == nullptr) return step;
  }
}

absl::StatusOr<double> SqliteReader::SumStepSeconds(uint64_t number) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select, database_.Prepare(absl::StrCat(
                                         "SELECT total(seconds), min(", StepIsGood(),
                                         ") FROM steps WHERE number = ? AND complete AND NOT "
                                         "skipped")));
  select.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(const bool row, select.Next());
  if (row && !select.IsNull(1) && select.Int(1) == 0) return DamagedRow("steps", number);
  return row ? select.Real(0) : 0.0;
}

absl::StatusOr<std::vector<JobStep>> SqliteReader::ReadSteps(uint64_t number, uint64_t after_step,
                                                             size_t limit) {
  MutexLock lock(mutex_);
  // A rank's reports arrive in step order. So the missing reports of a step below the newest
  // complete step are lost for good (a machine died), and the step is shown as it is.
  ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(absl::StrCat(
          SelectSteps(),
          "WHERE number = ?1 AND step > ?2 AND step <= (SELECT step FROM steps WHERE "
          "number = ?1 AND complete ORDER BY step DESC LIMIT 1) ORDER BY step LIMIT ?3")));
  select.Bind(1, int64_t(number)).Bind(2, Cursor(after_step)).Bind(3, int64_t(limit));
  return ReadSteps(std::move(select), number);
}

absl::StatusOr<Store::LogPage> SqliteReader::ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                                      size_t limit) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat("SELECT n, time, epoch, rank, text, ", kLogIsGood,
                                                  " FROM logs WHERE number = ? AND n > ? AND (? < "
                                                  "0 OR rank = ?) ORDER BY n LIMIT ?")));
  select.Bind(1, int64_t(number)).Bind(2, Cursor(after)).Bind(3, rank).Bind(4, rank);
  select.Bind(5, int64_t(limit));
  Store::LogPage page{.lines = {}, .numbers = {}, .last = after};
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return page;
    if (select.Int(5) == 0) return DamagedRow("logs", number);
    page.last = uint64_t(select.Int(0));
    page.numbers.push_back(page.last);
    page.lines.push_back({absl::FromUnixMicros(select.Int(1)), uint64_t(select.Int(2)),
                          uint32_t(select.Int(3)), select.Text(4)});
  }
}

absl::StatusOr<std::vector<JobStep>> SqliteReader::SampleSteps(
    uint64_t number, const std::vector<uint64_t>& wanted) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement newest,
                   database_.Prepare("SELECT step FROM steps WHERE number = ? AND complete "
                                     "ORDER BY step DESC LIMIT 1"));
  newest.Bind(1, int64_t(number));
  ASSIGN_OR_RETURN(const bool any, newest.Next());
  const int64_t last = any ? newest.Int(0) : 0;
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat(SelectSteps(),
                                                  "WHERE number = ? AND step >= ? AND step <= ? "
                                                  "ORDER BY step LIMIT 1")));
  std::vector<JobStep> steps;
  for (const uint64_t step : wanted) {
    if (!steps.empty() && step <= steps.back().step) continue;
    select.Reset();
    select.Bind(1, int64_t(number)).Bind(2, int64_t(step)).Bind(3, last);
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) break;
    ASSIGN_OR_RETURN(steps.emplace_back(), StepOf(select, number));
  }
  return steps;
}

absl::StatusOr<std::vector<LogRecord>> SqliteReader::LastLogs(uint64_t number, int64_t rank,
                                                              size_t limit) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare(absl::StrCat("SELECT time, epoch, rank, text, ", kLogIsGood,
                                                  " FROM logs WHERE number = ? AND (? < 0 OR rank "
                                                  "= ?) ORDER BY n DESC LIMIT ?")));
  select.Bind(1, int64_t(number)).Bind(2, rank).Bind(3, rank).Bind(4, int64_t(limit));
  std::vector<LogRecord> lines;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) break;
    if (select.Int(4) == 0) return DamagedRow("logs", number);
    lines.push_back({absl::FromUnixMicros(select.Int(0)), uint64_t(select.Int(1)),
                     uint32_t(select.Int(2)), select.Text(3)});
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

absl::StatusOr<std::vector<AuditEntry>> SqliteReader::ReadAudit(uint64_t after, size_t limit) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT * FROM audit WHERE n > ? ORDER BY n LIMIT ?"));
  select.Bind(1, Cursor(after)).Bind(2, int64_t(limit));
  std::vector<AuditEntry> entries;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, select.Next());
    if (!row) return entries;
    entries.push_back({.number = uint64_t(select.Int(0)),
                       .time = absl::FromUnixMicros(select.Int(1)),
                       .caller = select.Text(2),
                       .credential = select.Text(3),
                       .peer = select.Text(4),
                       .method = select.Text(5),
                       .target = select.Text(6),
                       .name_space = select.Text(7),
                       .detail = select.Text(8),
                       .outcome = select.Text(9),
                       .message = select.Text(10),
                       .hash = select.Text(11)});
  }
}

absl::StatusOr<uint64_t> SqliteReader::NewestAudit() {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const int64_t newest,
                   database_.QueryInt("SELECT coalesce(max(n), 0) FROM audit"));
  return uint64_t(newest);
}

}  // namespace trainyard::controller
