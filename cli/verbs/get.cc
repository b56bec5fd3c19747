// trainyard get: prints everything that is known of one job.

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/format.h"
#include "cli/progress.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/config/read_model.h"

namespace trainyard::cli {
namespace {

std::string Placement(const v1::Job& job) {
  std::string text;
  for (const v1::RankPlacement& rank : job.placement()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", rank.rank(), " on ", rank.worker_id(),
                    " device ", rank.device());
  }
  return text;
}

// Returns "llama3-8b with layers 2, hidden 64": the preset and the fields that differ from it.
std::string ModelText(const v1::Model& model) {
  const bool preset = !model.preset().empty();
  std::string text = preset ? model.preset() : model.architecture().family();
  const char* separator = " with ";
  const auto add = [&](const std::string& name, const std::string& value) {
    absl::StrAppend(&text, separator, name, " ", value);
    separator = ", ";
  };
  const v1::Architecture& changed = preset ? model.overrides() : model.architecture();
  const auto fields = PlainJson(changed);
  for (const auto& [name, value] : fields.items()) {
    if (name != "family" && name != kFieldsBeside) add(name, JsonText(value));
  }
  if (!model.import().empty()) add("import", model.import());
  for (const auto& [name, value] :
       std::map<std::string, std::string>(changed.fields().begin(), changed.fields().end())) {
    add(name, value);
  }
  return text;
}

void PrintJob(const v1::Job& job, Output& output) {
  const auto line = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) output.Line(absl::StrCat(name, std::string(14 - name.size(), ' '), value));
  };
  line("job", job.id());
  line("name", job.spec().name());
  line("state", ShortState(job.state()));
  line("reason", job.state_reason());
  line("model", ModelText(job.spec().model()));
  line("progress", ProgressLine(job));
  if (job.progress().mfu() > 1) {
    line("",
         "a worker measures the peak of a CPU when it starts, and the best one counts: start the "
         "workers again while their machines are idle");
  }
  line("continues", job.spec().continues().job());
  line("continued by", job.continued_by());
  line("attempt", absl::StrCat(job.epoch(), " (", job.restarts(),
                               job.restarts() == 1 ? " restart, " : " restarts, ",
                               job.restarts_without_progress(), " since the newest checkpoint)"));
  line("placement", Placement(job));
  line("created", FormatTimestamp(job.create_time()));
  line("started", FormatTimestamp(job.start_time()));
  line("finished", FormatTimestamp(job.finish_time()));
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    line("checkpoint", absl::StrCat(checkpoint.path(), " (step ", checkpoint.step(), ", ",
                                    FormatBytes(double(checkpoint.size_bytes())), ")"));
  }
  line("best", BestText(job));
}

// Prints what the model wrote after the newest validation.
absl::Status PrintTexts(const v1::Job& job, Client& client, Output& output) {
  const v1::Validation& validation = job.spec().validation();
  const uint64_t step = job.progress().step(), last = job.spec().steps();
  if (!validation.has_generate() || step == 0 || validation.every_steps() == 0) {
    return absl::OkStatus();
  }
  const uint64_t validated = step == last ? last : step - step % validation.every_steps();
  if (validated == 0) return absl::OkStatus();
  v1::StreamStepsRequest request;
  request.set_job_id(job.id());
  request.set_after_step(validated - 1);
  bool printed = false;
  return client.Read<v1::StreamStepsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* call) {
        return stub.StreamSteps(call, request);
      },
      [&](const v1::StreamStepsResponse& response) {
        if (std::exchange(printed, true) || response.steps(0).step() != validated) return;
        for (const v1::GeneratedText& text : response.steps(0).generated()) {
          output.Line(absl::StrCat("\nstep ", validated, " wrote, after: ", text.prompt()));
          output.Line(text.text());
        }
      });
}

absl::Status RunGet(const Context& context) {
  v1::GetJobRequest request;
  request.set_job_id(context.arguments.Text("JOB"));
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::GetJobResponse response,
                   client.Call(&v1::JobService::Stub::GetJob, request));
  if (PrintedAsJson(response.job(), context.output)) return absl::OkStatus();
  PrintJob(response.job(), context.output);
  return PrintTexts(response.job(), client, context.output);
}

}  // namespace

Verb GetVerb() {
  return {.name = "get",
          .summary = "shows a job: state, progress, placement, checkpoints",
          .positionals = {{"JOB", "the job's id"}},
          .options = {},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard get j-6aewpgm800", "trainyard get j-6aewpgm800 -o json"},
          .run = RunGet};
}

}  // namespace trainyard::cli
