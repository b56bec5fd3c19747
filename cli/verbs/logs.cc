// trainyard logs: prints the output of a job's ranks.

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/config/validate.h"

namespace trainyard::cli {
namespace {

absl::Status RunLogs(const Context& context) {
  v1::StreamLogsRequest request;
  request.set_job_id(context.arguments.Text("JOB"));
  request.set_follow(context.arguments.Flag("--follow"));
  if (context.arguments.Has("--rank"))
    request.set_rank(uint32_t(context.arguments.Number("--rank")));
  Client client(context.ControllerAddress(), context.Places());
  v1::StreamLogsResponse all;
  // A controller of an earlier release numbers no lines. If its stream is opened again, the stream
  // starts over, and as many lines are left out as were seen.
  uint64_t seen = 0;
  uint64_t skip = 0;
  bool continues = false;  // The present stream, if its lines have numbers, after the last line.
  const absl::Status status = client.Read<v1::StreamLogsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* call) {
        skip = seen;
        continues = request.after() > 0;
        return stub.StreamLogs(call, request);
      },
      [&](const v1::StreamLogsResponse& response) {
        for (const v1::LogLine& line : response.lines()) {
          if (line.n() > 0) request.set_after(line.n());
          const bool repeated = skip > 0 && !(continues && line.n() > 0);
          if (repeated) {
            --skip;
            continue;
          }
          ++seen;
          if (context.output.format() == Format::kJson) {
            *all.add_lines() = line;
          } else if (context.output.format() == Format::kJsonLines) {
            context.output.Line(JsonText(PlainJson(line)));
          } else {
            context.output.Line(
                absl::StrCat(FormatTimestamp(line.time()), " [", line.rank(), "] ", line.text()));
          }
        }
      });
  RETURN_IF_ERROR(status);
  if (context.output.format() == Format::kJson) context.output.Text(ProtobufJson(all));
  return absl::OkStatus();
}

}  // namespace

Verb LogsVerb() {
  return {
      .name = "logs",
      .summary = "prints the output of a job's ranks, oldest first",
      .positionals = {{"JOB", "the job's id"}},
      .options = {NumberOption("--rank", "R", "only this rank's lines", "", {0, kMaxDevices - 1}),
                  FlagOption("--follow", "-f", "continues until the job ends")},
      .offers = kController | kFormats | kQuiet,
      .examples = {"trainyard logs j-6aewpgm800 --rank 0 --follow"},
      .run = RunLogs};
}

}  // namespace trainyard::cli
