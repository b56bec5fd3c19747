// trainyard export-steps: writes a job's steps to an event file for TensorBoard.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/tensorboard.h"
#include "cli/verbs/verbs.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/export/event_file.h"

namespace trainyard::cli {
namespace {

class StepExport {
 public:
  StepExport(const Context& context, v1::Job job, std::unique_ptr<EventFile> file)
      : context_(context), job_(std::move(job)), file_(std::move(file)) {}

  uint64_t last_step() const { return last_step_; }

  // Rewrites the file with the whole present history.
  absl::Status WriteHistory();
  // Appends steps as they finish, until the job ends.
  absl::Status Follow();

 private:
  absl::Status Put(const v1::StepRecord& record);
  absl::Status PutNewer(const v1::StreamStepsResponse& response);
  absl::Status Stream(bool follow,
                      const std::function<absl::Status(const v1::StreamStepsResponse&)>& take);

  const Context& context_;
  const v1::Job job_;
  const std::unique_ptr<EventFile> file_;
  uint64_t last_step_ = 0;   // The last step that was written.
  uint64_t last_epoch_ = 0;  // The latest epoch of a written step.
  double last_time_ = 0;
};

absl::Status StepExport::Put(const v1::StepRecord& record) {
  RETURN_IF_ERROR(file_->Put(EventOf(record, job_.spec().devices())));
  last_step_ = record.step();
  last_epoch_ = std::max(last_epoch_, record.epoch());
  last_time_ = UnixSeconds(record.finish_time());
  return absl::OkStatus();
}

// Streams the steps after last_step_. An error of `take` ends the stream and is returned.
absl::Status StepExport::Stream(
    bool follow, const std::function<absl::Status(const v1::StreamStepsResponse&)>& take) {
  v1::StreamStepsRequest request;
  request.set_job_id(job_.id());
  request.set_follow(follow);
  grpc::ClientContext* call = nullptr;
  absl::Status taken;
  Client client(context_.ControllerAddress(), context_.Places());
  const absl::Status read = client.Read<v1::StreamStepsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* opened) {
        call = opened;
        request.set_after_step(last_step_);
        return stub.StreamSteps(call, request);
      },
      [&](const v1::StreamStepsResponse& response) {
        if (taken.ok()) taken = take(response);
        if (!taken.ok()) call->TryCancel();
      });
  return taken.ok() ? read : taken;
}

absl::Status StepExport::WriteHistory() {
  last_step_ = 0;
  last_time_ = UnixSeconds(job_.create_time());
  file_->Rewind();
  RETURN_IF_ERROR(file_->Put(EventOfSpec(job_)));
  RETURN_IF_ERROR(Stream(false, [&](const v1::StreamStepsResponse& response) {
    for (const v1::StepRecord& record : response.steps()) RETURN_IF_ERROR(Put(record));
    return absl::OkStatus();
  }));
  return file_->Finish(last_time_);
}

absl::Status StepExport::PutNewer(const v1::StreamStepsResponse& response) {
  for (const v1::StepRecord& record : response.steps()) {
    if (record.epoch() > last_epoch_) {
      // A new attempt has resumed from a checkpoint, and may have run some of the earlier steps
      // again.
      RETURN_IF_ERROR(WriteHistory());
    }
    if (record.step() > last_step_) RETURN_IF_ERROR(Put(record));
  }
  return file_->Flush();
}

absl::Status StepExport::Follow() {
  RETURN_IF_ERROR(Stream(true, [this](const auto& response) { return PutNewer(response); }));
  // Some steps may have been run again after the last one above, or reported late.
  return WriteHistory();
}

absl::Status RunExportSteps(const Context& context) {
  const std::string job_id = context.arguments.Text("JOB");
  const std::string directory = context.arguments.Text("--tensorboard");
  if (directory.empty()) {
    return UsageError("--tensorboard: wanted the directory for the event files, found none");
  }
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::GetJobResponse response,
                   client.Call(&v1::JobService::Stub::GetJob, request));
  const v1::Job& job = response.job();
  // Each job has its own directory, because TensorBoard shows each directory as a run.
  const std::string run = absl::StrCat(directory, "/", job_id);
  RETURN_IF_ERROR(MakeDirectories(run));
  const std::string path =
      absl::StrCat(run, "/events.out.tfevents.", job.create_time().seconds(), ".trainyard");
  ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file,
                   EventFile::Open(path, UnixSeconds(job.create_time())));
  StepExport steps(context, job, std::move(file));
  RETURN_IF_ERROR(steps.WriteHistory());
  if (context.arguments.Flag("--follow")) RETURN_IF_ERROR(steps.Follow());
  context.output.Line(path);
  context.output.Note(absl::StrCat("up to step ", steps.last_step(),
                                   "; to look at it: tensorboard --logdir ", directory));
  return absl::OkStatus();
}

}  // namespace

Verb ExportStepsVerb() {
  return {
      .name = "export-steps",
      .summary = "writes a job's steps for TensorBoard",
      .positionals = {{"JOB", "the job's id"}},
      .options = {TextOption(
                      "--tensorboard", "DIR",
                      "directory for the event files, in DIR/JOB; exporting again continues there"),
                  FlagOption("--follow", "-f", "continues until the job ends")},
      .offers = kController | kQuiet,
      .examples = {"trainyard export-steps j-6aewpgm800 --tensorboard runs/board",
                   "trainyard export-steps j-6aewpgm800 --tensorboard runs/board --follow"},
      .run = RunExportSteps};
}

}  // namespace trainyard::cli
