// trainyard cancel: asks a job to stop.

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/progress.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

absl::Status RunCancel(const Context& context) {
  v1::CancelJobRequest request;
  request.set_job_id(context.arguments.Text("JOB"));
  request.set_reason(context.arguments.Text("--reason"));
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::CancelJobResponse response,
                   client.Call(&v1::JobService::Stub::CancelJob, request));
  if (PrintedAsJson(response.job(), context.output) || context.output.quiet()) {
    return absl::OkStatus();
  }
  context.output.Line(absl::StrCat(response.job().id(), " ", ShortState(response.job().state())));
  return absl::OkStatus();
}

}  // namespace

Verb CancelVerb() {
  return {.name = "cancel",
          .summary =
              "stops a job; its ranks write a checkpoint first, if the job has any, and then free "
              "their devices",
          .positionals = {{"JOB", "the job's id"}},
          .options = {TextOption("--reason", "TEXT", "the reason, which the job shows")},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard cancel j-6aewpgm800 --reason 'wrong data'"},
          .run = RunCancel};
}

}  // namespace trainyard::cli
