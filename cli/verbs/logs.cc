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
  // Counts lines. If the stream is opened again, it starts over.
  uint64_t seen = 0;
  uint64_t skip = 0;
  const absl::Status status = client.Read<v1::StreamLogsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* call) {
        skip = seen;
        return stub.StreamLogs(call, request);
      },
      [&](const v1::StreamLogsResponse& response) {
        for (const v1::LogLine& line : response.lines()) {
          if (skip > 0) {
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
