// trainyard submit: sends a spec to the controller, and shows its errors at the lines of the text.

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/answer.h"
#include "cli/balancing.h"
#include "cli/client.h"
#include "cli/continued_run.h"
#include "cli/errors.h"
#include "cli/follow.h"
#include "cli/published_line.h"
#include "cli/request_id.h"
#include "cli/scale.h"
#include "cli/spec.h"
#include "cli/verbs/verbs.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "train/config/frozen.h"
#include "train/config/validate.h"
#include "train/hf/export_adapter.h"

namespace trainyard::cli {
namespace {

// The spec of the command line, and the run that it continues, if there is one.
struct Request {
  std::optional<ContinuedRun> run;
  SpecDocument document;
};

absl::StatusOr<Request> RequestOf(const Arguments& arguments, Client& client) {
  const std::string path = arguments.Text("SPEC");
  const std::vector<std::string> sets = arguments.List("--set"), allow = arguments.List("--allow");
  Request request;
  if (arguments.Has("--continue")) {
    ASSIGN_OR_RETURN(request.run, ContinuedRun::Find(arguments.Text("--continue"), client));
    ASSIGN_OR_RETURN(request.document, request.run->Spec(path, sets, allow));
    return request;
  }
  if (path.empty()) return UsageError("wanted a SPEC or --continue, found neither");
  if (!allow.empty()) return UsageError("--allow: wanted --continue beside it, found none");
  ASSIGN_OR_RETURN(request.document, SpecDocument::Read(path, sets));
  return request;
}

// Says what an imported model's config.json means for the load of its experts.
void NoteBalancing(const SpecDocument& document, Output& output) {
  const std::optional<ModelConfig>& imported = document.imported();
  const auto balancing = imported ? Balancing(*imported) : std::nullopt;
  if (balancing) output.Note(*balancing);
}

// Says before a job trains an adapter that PEFT could not load it.
void NotePeft(const SpecDocument& document, Output& output) {
  const absl::StatusOr<SpecDocument::Parsed> parsed = document.ToConfig();
  if (!parsed.ok() || !parsed->job.adapter) return;
  Violations wrong;  // The controller says what is wrong.
  Validate(parsed->job, wrong);
  if (!wrong.empty()) return;
  const absl::Status loads =
      CheckPeftLoads(parsed->model, TrainedParameters(parsed->job, parsed->model));
  if (loads.ok()) return;
  output.Note(absl::StrCat("this adapter cannot be exported for PEFT: ", loads.message()));
}

absl::Status RunSubmit(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(Request wanted, RequestOf(context.arguments, client));
  SpecDocument& document = wanted.document;
  for (const std::string& note : document.notes()) context.output.Note(note);
  if (const absl::Status imported = document.ResolveImport(); !imported.ok()) {
    return document.Explain(imported);
  }
  NoteBalancing(document, context.output);
  const bool scaled = context.arguments.Has("--scale-to");
  if (scaled) {
    RETURN_IF_ERROR(ScaleSpec(int64_t(context.arguments.Number("--scale-to")), client, document,
                              context.output));
  }
  NotePeft(document, context.output);
  if (wanted.run) RETURN_IF_ERROR(wanted.run->Compare(document, context.output));
  absl::StatusOr<v1::JobSpec> spec = document.ToProto();
  if (!spec.ok()) return document.Explain(spec.status());

  v1::SubmitJobRequest request;
  *request.mutable_spec() = *std::move(spec);
  request.set_request_id(NewRequestId());
  request.set_namespace_(context.arguments.Text("--namespace"));
  request.set_validate_only(context.arguments.Flag("--validate-only"));
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, request);
  if (!response.ok()) return document.Explain(response.status());
  if (request.validate_only()) {
    if (!PrintedAsJson(response->job(), context.output)) {
      context.output.Note(absl::StrCat(document.name(), " is valid"));
    }
    return absl::OkStatus();
  }
  if (!PrintedAsJson(response->job(), context.output)) context.output.Line(response->job().id());
  if (!context.arguments.Flag("--watch") && !scaled) return absl::OkStatus();
  RETURN_IF_ERROR(FollowJob(client, response->job().id(), context.output));
  if (!scaled) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SpecDocument::Parsed run, document.ToConfig());
  return PrintPublishedLine(client, response->job().id(), run.job, run.model, context.output);
}

}  // namespace

Verb SubmitVerb() {
  return {
      .name = "submit",
      .summary = "submits a job; prints its id",
      .positionals = {{"SPEC",
                       "the job spec, YAML or JSON; - is standard input. With --continue, that of "
                       "the run if it is absent",
                       false}},
      .options = {ListOption("--set", "PATH=VALUE", "changes a field of the spec; may be repeated"),
                  TextOption("--continue", "JOB_OR_DIR",
                             "goes on with the run of a job that has ended, or of a checkpoint "
                             "directory; the new job owns the directory from then on"),
                  ListOption("--allow", "FIELD",
                             "lets FIELD differ from the run's although samples are then repeated "
                             "or skipped; may be repeated"),
                  FlagOption("--watch", "-w",
                             "follows the job, and exits by its outcome (3: failed or cancelled); "
                             "Ctrl-C leaves it running"),
                  NumberOption("--scale-to", "N",
                               "shrinks the job to at most N devices, notes each change, follows "
                               "the job, and prints the line of the published tables",
                               "", {1, uint64_t(kMaxDevices)}),
                  FlagOption("--validate-only", "",
                             "checks the spec as if submitted, and stores nothing"),
                  TextOption(
                      "--namespace", "NAME",
                      "namespace of the job, for operators; default: 'default', or your own")},
      .offers = kController | kFormats | kQuiet,
      .examples =
          {"trainyard submit spec.yaml --watch",
           "trainyard submit spec.yaml --set steps=500 --set optimizer.adamw.learning_rate=1e-3",
           "trainyard submit recipes/published/nemo20-gpt3-5b-fp8-64.yaml --scale-to 1",
           "trainyard submit --continue j-6aewpgm800 --set steps=2000 --set devices=2",
           "trainyard recipes tiny | trainyard submit -"},
      .run = RunSubmit};
}

}  // namespace trainyard::cli
