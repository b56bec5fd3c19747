#include "cli/continued_run.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "cli/progress.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/continued_run.h"
#include "train/start/continued.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

void RemoveNulls(Json& json) {
  if (!json.is_structured()) return;
  for (auto item = json.begin(); item != json.end();) {
    const bool null = json.is_object() && item->is_null();
    if (!null) RemoveNulls(*item);
    item = null ? json.erase(item) : std::next(item);
  }
}

// Refuses another model.import than that of the run. A continued run never reads model.import, so a
// wrong path would pass unnoticed. But whoever names another directory beside --continue expects
// its weights to be trained. A note is easily missed, and the mistake is found after a long run. A
// directory that was moved need not be named at all.
absl::Status CheckImport(const std::vector<RunChange>& changes) {
  Violations refused;
  for (const RunChange& change : changes) {
    if (change.field != "model.import") continue;
    const bool imported = change.before != R"("")";
    refused.Add({.field = change.field,
                 .wanted = imported ? change.before + ", as in the run, or none" : "none",
                 .found = change.now,
                 .note = "the run goes on with its own parameters, so leave model.import out "
                         "(without a SPEC, the spec is that of the run). To begin with that model, "
                         "submit the job without --continue, with another checkpoint.directory"});
  }
  return refused.ToStatus();
}

// Returns the job that has the run of `job` now, as far as the controller knows. A job has its run
// from its first report on. That report lists the checkpoints of the directory, and a job that goes
// on with a run begins at one of them.
v1::Job OwnerOfRun(v1::Job job, Client& client) {
  const auto follow = [&](const std::string& id) {
    if (id.empty()) return false;
    v1::GetJobRequest request;
    request.set_job_id(id);
    auto next = client.Call(&v1::JobService::Stub::GetJob, request);
    if (next.ok()) job = std::move(*next->mutable_job());
    return next.ok();
  };
  while (job.checkpoints().empty() && follow(job.spec().continues().job())) {
  }
  while (follow(job.continued_by())) {
  }
  return job;
}

// Returns a resolved job (train/config/resolved_job.h) as a spec. A spec leaves out what is absent.
std::string SpecOf(const std::string& resolved) {
  Json json = ParseJson<Json>(resolved);
  if (!json.is_object()) return "";
  json.erase("format");
  RemoveNulls(json);
  return JsonText(json);
}

}  // namespace

absl::StatusOr<ContinuedRun> ContinuedRun::OfJob(const v1::Job& job, Client& client) {
  if (!IsTerminal(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("--continue: wanted a job that has ended, found ", job.id(), ", which is ",
                     ShortState(job.state()), "; cancel that job first"));
  }
  if (job.spec().checkpoint().directory().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--continue: wanted a job with checkpoints, found ", job.id(), " without"));
  }
  if (const v1::Job owner = OwnerOfRun(job, client); owner.id() != job.id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--continue: wanted the job that has the run, which is ", owner.id(), ", found ", job.id(),
        job.continued_by().empty() ? ", which ended before it had taken over the run"
                                   : ", whose run has passed on",
        "; to go on with it: trainyard submit --continue ", owner.id()));
  }
  ContinuedRun run;
  run.name_ = absl::StrCat("job ", job.id());
  run.job_ = job.id();
  run.epoch_ = job.epoch();
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    run.done_ = std::max(run.done_, int64_t(checkpoint.step()));
  }
  run.directory_ = job.spec().checkpoint().directory();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto printed = google::protobuf::util::MessageToJsonString(job.spec(), &run.spec_, options);
  if (!printed.ok()) return absl::InternalError(printed.message().ToString());
  return run;
}

absl::StatusOr<ContinuedRun> ContinuedRun::OfDirectory(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string canonical, Roots().FindDirectory(directory));
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(canonical));
  if (loadable.empty()) {
    return absl::NotFoundError(absl::StrCat("--continue: no complete checkpoint in ", directory,
                                            "; wanted a job's checkpoint.directory"));
  }
  ASSIGN_OR_RETURN(ChosenCheckpoint newest,
                   FirstGood(PathsOfComplete(loadable),
                             [](const std::string& path) { return Checkpoint::Open(path); }));
  ContinuedRun run;
  run.name_ = absl::StrCat("directory ", directory);
  run.directory_ = directory;
  run.checkpoint_ = std::move(newest.checkpoint);
  const RunState& state = run.checkpoint_->state();
  run.done_ = state.step;
  ASSIGN_OR_RETURN(const std::optional<Owner> owner, FindOwner(canonical));
  run.job_ = owner ? owner->job_id : state.job_id;
  ASSIGN_OR_RETURN(const int64_t epoch, NewestEpoch(canonical));
  run.epoch_ = uint64_t(epoch);
  ASSIGN_OR_RETURN(const std::optional<RecordedJob> record,
                   ReadRecordedJob(canonical, state.epoch));
  if (record) run.spec_ = SpecOf(record->job);
  return run;
}

absl::StatusOr<ContinuedRun> ContinuedRun::Find(const std::string& what, Client& client) {
  std::error_code error;
  if (std::filesystem::is_directory(what, error)) return OfDirectory(what);
  v1::GetJobRequest request;
  request.set_job_id(what);
  const auto found = client.Call(&v1::JobService::Stub::GetJob, request);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(
        absl::StrCat("--continue: wanted a job or a checkpoint directory, found '", what, "'"));
  }
  RETURN_IF_ERROR(found.status());
  return OfJob(found->job(), client);
}

absl::StatusOr<SpecDocument> ContinuedRun::Spec(const std::string& path,
                                                const std::vector<std::string>& sets,
                                                const std::vector<std::string>& allow) const {
  if (path.empty() && spec_.empty()) {
    return UsageError(absl::StrCat("wanted a SPEC beside --continue, found none: the release that ",
                                   "wrote the ", name_, " has recorded no job there"));
  }
  ASSIGN_OR_RETURN(SpecDocument document, path.empty()
                                              ? SpecDocument::Parse("spec of " + name_, spec_, {})
                                              : SpecDocument::Read(path, {}));
  const std::string by = "--continue";
  RETURN_IF_ERROR(
      document.Set(absl::StrCat("checkpoint.directory=", JsonText(Json(directory_))), by));
  for (const std::string& set : sets) {
    RETURN_IF_ERROR(document.Set(set, absl::StrCat("--set ", set)));
  }
  const Json continues = {{"job", job_}, {"epoch", epoch_}, {"allow", allow}};
  RETURN_IF_ERROR(document.Set(absl::StrCat("continues=", JsonText(continues)), by));
  return document;
}

absl::Status ContinuedRun::Compare(const SpecDocument& document, Output& output) const {
  const absl::StatusOr<SpecDocument::Parsed> now = document.ToConfig();
  if (!now.ok()) return absl::OkStatus();  // The controller says what is wrong.
  JobConfig before;
  if (checkpoint_) {
    ASSIGN_OR_RETURN(before, JobOfRun(*checkpoint_, now->job));
  } else {
    ASSIGN_OR_RETURN(const SpecDocument own, SpecDocument::Parse(name_, spec_, {}));
    ASSIGN_OR_RETURN(SpecDocument::Parsed parsed, own.ToConfig());
    before = std::move(parsed.job);
  }
  const std::vector<RunChange> changes = ChangesOfRun(before, now->job);
  Violations refused;
  for (const absl::Status& checked : {CheckLonger(done_, now->job), CheckImport(changes),
                                      CheckChanges(changes, now->job.continues->allow)}) {
    for (const FieldViolation& found : Violations::FromStatus(checked)) refused.Add(found);
  }
  if (!refused.empty()) return document.Explain(refused.ToStatus());
  for (const RunChange& change : changes) {
    output.Note(absl::StrCat("changes the run: ", Described(change)));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::cli
