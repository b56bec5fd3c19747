#include "cli/follow.h"

#include "absl/strings/str_cat.h"
#include "cli/progress.h"
#include "common/status_macros.h"

namespace trainyard::cli {

absl::Status FollowJob(Client& client, const std::string& job_id, Output& output) {
  v1::Job job;
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  ProgressPrinter printer(RealClock(), output);
  const auto watch = [&] {
    return client.Read<v1::WatchJobResponse>(
        [&](v1::JobService::Stub& stub, grpc::ClientContext* context) {
          return stub.WatchJob(context, request);
        },
        [&](const v1::WatchJobResponse& response) {
          job = response.job();
          request.set_after_revision(job.revision());
          printer.Show(job);
        });
  };
  absl::Status status = watch();
  if (absl::IsOutOfRange(status)) {
    // The controller came back with an older store, so its present state counts.
    request.set_after_revision(0);
    status = watch();
  }
  RETURN_IF_ERROR(status);
  if (!IsTerminal(job.state())) {
    return absl::InternalError(absl::StrCat("the controller ended the stream of ", job_id,
                                            " before the job ended; run 'trainyard watch ", job_id,
                                            "' again"));
  }
  return Outcome(job);
}

}  // namespace trainyard::cli
