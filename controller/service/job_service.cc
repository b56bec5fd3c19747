#include "controller/service/job_service.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/stream_open.h"
#include "common/text.h"
#include "common/violations.h"
#include "controller/access/error.h"
#include "controller/jobs/job_id.h"
#include "controller/service/convert_job.h"
#include "controller/service/reply.h"

namespace trainyard::controller {
namespace {

constexpr uint32_t kDefaultJobs = 100;
constexpr uint32_t kMaxJobs = 1000;
// A page ends with the job that reaches so many bytes. Clients take 4 MiB unless they say
// otherwise, and a job has at most about 1 MiB.
constexpr size_t kPageBytes = 2 << 20;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxReasonBytes = 512;

// How many rows a stream sends at once: about 100 KB.
constexpr size_t kStepsPerMessage = 200;  // Clients take 4 MiB, and a step's texts have 12 KiB.
constexpr size_t kLinesPerMessage = 200;

grpc::Status JobError(const absl::Status& status, const std::string& job_id) {
  return ToGrpc(status, "trainyard.v1.Job", job_id);
}

// Returns a job that was not stored, for validate_only.
v1::Job Unstored(const v1::JobSpec& spec, const JobFacts& facts) {
  v1::Job job;
  *job.mutable_spec() = spec;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.mutable_progress()->set_total_steps(facts.steps);
  return job;
}

// Makes a request id unique among namespaces, because two of them may use the same id. Ids of the
// default namespace are stored unchanged, as they were before there were other namespaces.
std::string ScopedRequestId(const std::string& id, const std::string& name_space) {
  if (id.empty() || (name_space == kDefaultNamespace && !absl::StrContains(id, '\n'))) return id;
  return absl::StrCat(name_space, "\n", id);
}

}  // namespace

absl::StatusOr<std::string> JobService::Sees(const grpc::ServerContextBase& context) const {
  ASSIGN_OR_RETURN(const Principal caller, gate_.CallerOf(context));
  return caller.name_space;
}

template <typename Response>
grpc::ServerWriteReactor<Response>* JobService::Follow(grpc::CallbackServerContext* context,
                                                       const std::string& job_id,
                                                       Source<Response> source) {
  const absl::StatusOr<Principal> caller = gate_.CallerOf(*context);
  const std::string whose = caller.ok() ? caller->account() : "";
  auto guarded = [this, context, sees = caller.ok() ? caller->name_space : kNoNamespace,
                  source = std::move(source)](Response& response) -> Filled {
    // Checked for each message, because a revocation also ends open streams.
    const absl::Status status = streams_.Check(*context);
    if (!status.ok()) return {Fill::kEnd, ToGrpc(status)};
    return source(sees, response);
  };
  context->AddInitialMetadata(kStreamOpen, "1");
  const auto stream =
      FollowStream<Response>::Start(book_, {executor_, whose}, job_id, std::move(guarded));
  streams_.OnEnd(*context, [weak = std::weak_ptr(stream)](const absl::Status& status) {
    if (const auto open = weak.lock()) open->End(ToGrpc(status));
  });
  return stream.get();
}

absl::StatusOr<std::shared_ptr<const Spec>> JobService::Admit(
    const Principal& caller, const v1::SubmitJobRequest& request) const {
  if (request.request_id().size() > kMaxRequestIdBytes) {
    return WrongField("request_id", absl::StrCat("at most ", kMaxRequestIdBytes, " characters"),
                      request.request_id().size());
  }
  const std::string own = caller.name_space.empty() ? kDefaultNamespace : caller.name_space;
  const std::string& name_space = request.namespace_().empty() ? own : request.namespace_();
  if (!caller.name_space.empty() && name_space != caller.name_space) {
    return absl::PermissionDeniedError(absl::StrCat(caller.name, " submits to the namespace ",
                                                    caller.name_space, ", not to ", name_space));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const Spec> spec, FromProto(request.spec()));
  return namespaces_.Admit(*spec, name_space, caller);
}

void JobService::Refuse(grpc::ServerUnaryReactor* reactor, AuditEntry entry,
                        const absl::Status& status) {
  const std::string job_id = entry.target;
  audit_.Write(std::move(entry), status, [reactor, status, job_id](const absl::Status&) {
    reactor->Finish(JobError(status, job_id));
  });
}

grpc::ServerUnaryReactor* JobService::SubmitJob(grpc::CallbackServerContext* context,
                                                const v1::SubmitJobRequest* request,
                                                v1::SubmitJobResponse* response) {
  const absl::StatusOr<Principal> caller = gate_.CallerOf(*context);
  if (!caller.ok()) return Reply(context, [&] { return ToGrpc(caller.status()); });
  const auto spec = Admit(*caller, *request);
  if (request->validate_only()) {
    return Reply(context, [&] {
      if (!spec.ok()) return ToGrpc(spec.status());
      const absl::Status status = book_.CheckSubmit(**spec);
      if (status.ok()) *response->mutable_job() = Unstored(request->spec(), (*spec)->facts);
      return ToGrpc(status);
    });
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  AuditEntry entry = audit_.Entry(*caller, "JobService.SubmitJob", context->peer());
  entry.detail = std::string(CutUtf8(ValidUtf8(request->spec().name()), kMaxReasonBytes));
  if (!spec.ok()) {
    Refuse(reactor, std::move(entry), spec.status());
    return reactor;
  }
  entry.name_space = (*spec)->facts.name_space;
  book_.Submit(
      ScopedRequestId(request->request_id(), entry.name_space), *spec,
      [this, reactor, response, entry](absl::StatusOr<Snapshot> job) {
        if (!job.ok()) return Refuse(reactor, entry, job.status());
        *response->mutable_job() = ToProto(**job);
        reactor->Finish(grpc::Status::OK);
      },
      entry);
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request,
                                             v1::GetJobResponse* response) {
  return Reply(context, [&] {
    const absl::StatusOr<std::string> sees = Sees(*context);
    if (!sees.ok()) return ToGrpc(sees.status());
    const auto job = book_.Get(request->job_id(), *sees);
    if (job.ok()) *response->mutable_job() = ToProto(**job);
    return JobError(job.status(), request->job_id());
  });
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  return Reply(context, [&] {
    uint64_t before = 0;
    if (!request->page_token().empty()) {
      const auto number = JobNumber(request->page_token());
      if (!number) {
        return ToGrpc(WrongField("page_token", "a next_page_token",
                                 absl::StrCat("'", request->page_token(), "'")));
      }
      before = *number;
    }
    const absl::StatusOr<std::string> sees = Sees(*context);
    if (!sees.ok()) return ToGrpc(sees.status());
    JobFilter filter{
        .states = {}, .name_space = NamespaceToList(*sees, request->namespace_()), .name = {}};
    for (const int state : request->states()) filter.states.push_back(JobState(state));
    const size_t size =
        std::min(request->page_size() == 0 ? kDefaultJobs : request->page_size(), kMaxJobs);
    const auto jobs = book_.List(filter, before, size + 1);
    if (!jobs.ok()) return ToGrpc(jobs.status());
    size_t taken = 0;
    for (size_t bytes = 0; taken < std::min(size, jobs->size()) && bytes < kPageBytes; ++taken) {
      *response->add_jobs() = ToProto(*(*jobs)[taken]);
      bytes += response->jobs().rbegin()->ByteSizeLong();
    }
    if (jobs->size() > taken) response->set_next_page_token((*jobs)[taken - 1]->id);
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::CancelJobResponse* response) {
  const absl::StatusOr<Principal> caller = gate_.CallerOf(*context);
  if (!caller.ok()) return Reply(context, [&] { return ToGrpc(caller.status()); });
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  AuditEntry entry = audit_.Entry(*caller, "JobService.CancelJob", context->peer());
  entry.target = request->job_id();
  entry.detail = std::string(CutUtf8(ValidUtf8(request->reason()), kMaxReasonBytes));
  const auto job = book_.Get(request->job_id(), caller->name_space);
  if (!job.ok()) {
    Refuse(reactor, std::move(entry), job.status());
    return reactor;
  }
  entry.name_space = (*job)->spec->facts.name_space;
  coordinator_.Cancel((*job)->id, {.reason = entry.detail, .audit = entry},
                      [this, reactor, response, entry](absl::StatusOr<Snapshot> job) {
                        if (!job.ok()) return Refuse(reactor, entry, job.status());
                        *response->mutable_job() = ToProto(**job);
                        reactor->Finish(grpc::Status::OK);
                      });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobService::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  const auto source = [this, id = request->job_id(), seen = request->after_revision(),
                       first = true](const std::string& sees,
                                     v1::WatchJobResponse& response) mutable -> Filled {
    const auto job = book_.Get(id, sees);
    if (!job.ok()) return {Fill::kEnd, JobError(job.status(), id)};
    if (first && seen > (*job)->revision) {
      return {
          Fill::kEnd,
          ToGrpc(absl::OutOfRangeError(absl::StrCat("after_revision ", seen, " is newer than job ",
                                                    id, ", which is at ", (*job)->revision)))};
    }
    first = false;
    if ((*job)->revision <= seen) {
      return {IsTerminal((*job)->state) ? Fill::kEnd : Fill::kNothingYet, grpc::Status::OK};
    }
    seen = (*job)->revision;
    *response.mutable_job() = ToProto(**job);
    return {Fill::kSome, grpc::Status::OK};
  };
  return Follow<v1::WatchJobResponse>(context, request->job_id(), source);
}

grpc::ServerWriteReactor<v1::StreamStepsResponse>* JobService::StreamSteps(
    grpc::CallbackServerContext* context, const v1::StreamStepsRequest* request) {
  const auto source =
      [this, id = request->job_id(), seen = request->after_step(), follow = request->follow()](
          const std::string& sees, v1::StreamStepsResponse& response) mutable -> Filled {
    // Reads the state before the rows: a job that has ended gets no further rows.
    const auto job = book_.Get(id, sees);
    if (!job.ok()) return {Fill::kEnd, JobError(job.status(), id)};
    const auto steps = book_.store().ReadSteps((*job)->number, seen, kStepsPerMessage);
    if (!steps.ok()) return {Fill::kEnd, ToGrpc(steps.status())};
    for (const JobStep& step : *steps) WriteMessage(step, *response.add_steps());
    if (!steps->empty()) {
      seen = steps->back().step;
      return {Fill::kSome, grpc::Status::OK};
    }
    return {follow && !IsTerminal((*job)->state) ? Fill::kNothingYet : Fill::kEnd,
            grpc::Status::OK};
  };
  return Follow<v1::StreamStepsResponse>(context, request->job_id(), source);
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobService::StreamLogs(
    grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) {
  const auto source =
      [this, id = request->job_id(), seen = request->after(),
       rank = request->has_rank() ? int64_t(request->rank()) : -1, follow = request->follow()](
          const std::string& sees, v1::StreamLogsResponse& response) mutable -> Filled {
    const auto job = book_.Get(id, sees);
    if (!job.ok()) return {Fill::kEnd, JobError(job.status(), id)};
    const uint32_t ranks = (*job)->spec->facts.ranks;
    if (rank >= int64_t(ranks)) {
      return {Fill::kEnd,
              ToGrpc(WrongField("rank", absl::StrCat("0 to ", ranks - 1), rank, ranks - 1))};
    }
    const auto page = book_.store().ReadLogs((*job)->number, seen, rank, kLinesPerMessage);
    if (!page.ok()) return {Fill::kEnd, ToGrpc(page.status())};
    seen = page->last;
    for (size_t i = 0; i < page->lines.size(); ++i) {
      v1::LogLine& line = *response.add_lines();
      WriteMessage(page->lines[i], line);
      line.set_n(page->numbers[i]);
    }
    if (!page->lines.empty()) return {Fill::kSome, grpc::Status::OK};
    return {follow && !IsTerminal((*job)->state) ? Fill::kNothingYet : Fill::kEnd,
            grpc::Status::OK};
  };
  return Follow<v1::StreamLogsResponse>(context, request->job_id(), source);
}

grpc::ServerUnaryReactor* JobService::ListEvents(grpc::CallbackServerContext* context,
                                                 const v1::ListEventsRequest* request,
                                                 v1::ListEventsResponse* response) {
  return Reply(context, [&] {
    const absl::StatusOr<std::string> sees = Sees(*context);
    if (!sees.ok()) return ToGrpc(sees.status());
    const auto job = book_.Get(request->job_id(), *sees);
    if (!job.ok()) return JobError(job.status(), request->job_id());
    const auto events = book_.store().ReadEvents((*job)->number);
    if (!events.ok()) return ToGrpc(events.status());
    for (const EventRecord& event : *events) WriteMessage(event, *response->add_events());
    return grpc::Status::OK;
  });
}

}  // namespace trainyard::controller
