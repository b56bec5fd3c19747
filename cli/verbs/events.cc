// trainyard events: lists what happened to a job.

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

absl::Status RunEvents(const Context& context) {
  v1::ListEventsRequest request;
  request.set_job_id(context.arguments.Text("JOB"));
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::ListEventsResponse response,
                   client.Call(&v1::JobService::Stub::ListEvents, request));
  if (PrintedAsJson(response, response.events(), context.output)) return absl::OkStatus();
  std::vector<std::vector<std::string>> rows;
  for (const v1::Event& event : response.events()) {
    rows.push_back({FormatTimestamp(event.time()), ShortName(event.type(), "EVENT_TYPE_"),
                    absl::StrCat(event.epoch()), event.message()});
  }
  context.output.Table({{"TIME"}, {"EVENT"}, {"ATTEMPT", true}, {"WHAT"}}, rows);
  return absl::OkStatus();
}

}  // namespace

Verb EventsVerb() {
  return {.name = "events",
          .summary = "lists what happened to a job, oldest first",
          .positionals = {{"JOB", "the job's id"}},
          .options = {},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard events j-6aewpgm800"},
          .run = RunEvents};
}

}  // namespace trainyard::cli
