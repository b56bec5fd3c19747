// trainyard list: lists jobs, newest first.

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/progress.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

absl::StatusOr<v1::ListJobsRequest> ListRequest(const Arguments& arguments) {
  v1::ListJobsRequest request;
  for (const std::string& name : arguments.List("--state")) {
    v1::JobState state;
    if (!v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(name)), &state)) {
      return UsageError(absl::StrCat(
          "--state: wanted queued, starting, running, recovering, stopping, succeeded, failed or "
          "cancelled, found '",
          name, "'"));
    }
    request.add_states(state);
  }
  request.set_namespace_(arguments.Text("--namespace"));
  return request;
}

// Fetches all pages, up to `limit` jobs.
absl::StatusOr<v1::ListJobsResponse> Fetch(Client& client, v1::ListJobsRequest request,
                                           uint64_t limit) {
  v1::ListJobsResponse all;
  do {
    request.set_page_size(uint32_t(std::min<uint64_t>(limit - uint64_t(all.jobs_size()), 1000)));
    ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                     client.Call(&v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && uint64_t(all.jobs_size()) < limit);
  return all;
}

// Returns "57/200". While no attempt trains, the first word says what 57 is.
std::string Steps(const v1::Job& job) {
  const uint64_t step = job.progress().step();
  const bool waits = WaitsForAttempt(job.state()) && step > 0;
  const bool begins = job.state() == v1::JOB_STATE_STARTING && job.has_resumed_step();
  return absl::StrCat(!waits ? "" : begins ? "from " : "reached ", step, "/", job.spec().steps());
}

absl::Status RunList(const Context& context) {
  ASSIGN_OR_RETURN(const v1::ListJobsRequest request, ListRequest(context.arguments));
  const uint64_t limit = context.arguments.Number("--limit");
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::ListJobsResponse all, Fetch(client, request, limit));
  if (PrintedAsJson(all, all.jobs(), context.output)) return absl::OkStatus();
  std::vector<std::vector<std::string>> rows;
  for (const v1::Job& job : all.jobs()) {
    rows.push_back({job.id(), job.spec().name(), ShortState(job.state()), Steps(job),
                    job.progress().has_loss() ? FormatNumber(job.progress().loss(), 4) : "",
                    FormatTimestamp(job.create_time()), job.state_reason()});
  }
  context.output.Table(
      {{"JOB"}, {"NAME"}, {"STATE"}, {"STEP", true}, {"LOSS", true}, {"CREATED"}, {"REASON"}},
      rows);
  return absl::OkStatus();
}

}  // namespace

Verb ListVerb() {
  return {.name = "list",
          .summary = "lists jobs, newest first",
          .positionals = {},
          .options = {ListOption("--state", "STATE", "only jobs in this state; may be repeated"),
                      NumberOption("--limit", "N", "at most this many jobs", "100", {1}),
                      TextOption("--namespace", "NAME",
                                 "only jobs of this namespace; default: all that you may see")},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard list", "trainyard list --state running -o jsonl"},
          .run = RunList};
}

}  // namespace trainyard::cli
