// Proves the job API as a client sees it, over a real connection.

#include "controller/service/job_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include "common/stream_open.h"
#include "tests/controller/testing/server_fixture.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::controller {
namespace {

class JobServiceTest : public ServerFixture {
 protected:
  static std::vector<std::string> FieldsOf(const grpc::Status& status) {
    google::rpc::Status details;
    google::rpc::BadRequest request;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    EXPECT_TRUE(details.details_size() > 0 && details.details(0).UnpackTo(&request));
    std::vector<std::string> fields;
    for (const auto& violation : request.field_violations()) fields.push_back(violation.field());
    return fields;
  }
};

TEST_F(JobServiceTest, SubmitAnswersWithAQueuedJobThatIsThere) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(2), &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.progress().total_steps(), 10);
  EXPECT_FALSE(job.progress().has_validation_loss());
  EXPECT_EQ(job.spec().SerializeAsString(), Spec(2).SerializeAsString());
  EXPECT_EQ(Get(job.id()).id(), job.id());
  const v1::Job waiting =
      Await(job.id(), [](const v1::Job& j) { return !j.state_reason().empty(); });
  EXPECT_THAT(waiting.state_reason(), ::testing::HasSubstr("needs 2 devices"));
}

TEST_F(JobServiceTest, WrongSpecsAreRefusedByField) {
  v1::JobSpec spec = Spec();
  spec.mutable_batch()->set_global(0);
  spec.set_steps(0);
  grpc::Status status = Submit(spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(FieldsOf(status), testing::IsSupersetOf({"batch.global", "steps"}));

  spec = Spec();
  spec.GetReflection()->MutableUnknownFields(&spec)->AddVarint(99, 1);
  status = Submit(spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(FieldsOf(status), ::testing::ElementsAre("#99"));
}

// What a client is told about each way in which a layout cannot work: the field, and what to put
// there. The combinations are tests/train/config's.
TEST_F(JobServiceTest, LayoutsThatCannotWorkAreRefusedWithTheFieldAndTheNearestValue) {
  struct BadLayout {
    const char* parallelism;  // As text, with devices and batch where they matter.
    const char* field;
    const char* description;
  };
  for (const BadLayout& bad : {
           BadLayout{"parallelism {tensor: 3} devices: 3", "parallelism.tensor",
                     "divides ffn = 128, heads = 4, vocab = 256 (or vocab_multiple = 3, found 1) "
                     "and the 32 "
                     "tokens of a micro-batch on a rank, and divides kv_heads = 2 or is a multiple "
                     "of it, found 3; nearest 2"},
           {"parallelism {pipeline: 5} devices: 5", "parallelism.pipeline",
            "wanted at most 4 parts of 2 layers, embedding and head, found 5 x 1; nearest 4"},
           {"parallelism {pipeline: 2 virtual_pipeline: 3} devices: 2",
            "parallelism.virtual_pipeline", "found 2 x 3; nearest 2"},
           {"parallelism {context: 3} devices: 3", "batch.sequence",
            "wanted a multiple of 2 x context = 6, found 32; nearest 30"},
           {"parallelism {pipeline: 2 virtual_pipeline: 2} devices: 8", "batch.global",
            "wanted a multiple of micro x data parallel x pipeline = 1 x 4 x 2 = 8 for "
            "INTERLEAVED_ONE_F_ONE_B, found 4; nearest 8"},
           {"parallelism {virtual_pipeline: 2} devices: 1", "parallelism.virtual_pipeline",
            "wanted 1 where pipeline is 1, found 2; nearest 1"},
           {"parallelism {pipeline: 2 schedule: PIPELINE_SCHEDULE_INTERLEAVED_ONE_F_ONE_B} "
            "devices: 2",
            "parallelism.virtual_pipeline",
            "wanted at least 2 for INTERLEAVED_ONE_F_ONE_B, found 1; nearest 2"},
           {"parallelism {pipeline: 2 virtual_pipeline: 1 schedule: PIPELINE_SCHEDULE_V_HALF} "
            "devices: 2",
            "parallelism.virtual_pipeline", "wanted 2 for V_HALF, found 1; nearest 2"},
           {"parallelism {tensor: 2} devices: 3", "devices",
            "wanted a multiple of tensor x pipeline x context = 2 x 1 x 1 = 2, found 3; nearest 4"},
           {"parallelism {tensor: 512 pipeline: 256} devices: 65536", "parallelism.tensor",
            "found 512; nearest 256"},
       }) {
    SCOPED_TRACE(bad.parallelism);
    v1::JobSpec spec = Spec(), layout;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(bad.parallelism, &layout));
    spec.MergeFrom(layout);
    const grpc::Status status = Submit(spec);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(FieldsOf(status), ::testing::ElementsAre(bad.field));
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(bad.description));
  }
}

TEST_F(JobServiceTest, ValidateOnlyStoresNothing) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), &job, "request", true).ok());
  EXPECT_EQ(job.id(), "");
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  v1::JobSpec wrong = Spec();
  wrong.set_steps(0);
  EXPECT_EQ(Submit(wrong, nullptr, "", true).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(JobServiceTest, RequestIdsMakeRetriesSafe) {
  v1::JobSpec spec = Spec();
  for (int i = 0; i < 20; ++i) (*spec.mutable_labels())["label" + std::to_string(i)] = "x";
  v1::Job first, again, other;
  ASSERT_TRUE(Submit(spec, &first, "id").ok());
  ASSERT_TRUE(Submit(spec, &again, "id").ok());
  EXPECT_EQ(first.id(), again.id());
  spec.set_seed(7);
  EXPECT_EQ(Submit(spec, &other, "id").error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(JobServiceTest, SecondJobOnACheckpointDirectoryIsRefused) {
  const std::string id = MustSubmit(Spec(1, "runs/a"));
  const grpc::Status status = Submit(Spec(1, "runs/a"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(FieldsOf(status), ::testing::ElementsAre("checkpoint.directory"));
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr(id));
}

// Catches a job that is accepted, placed and started before anybody says that its path is no good;
// and a retry that is refused although the first call was accepted.
TEST_F(JobServiceTest, PathsThatNoWorkerAdmitsAreRefusedAtOnce) {
  v1::JobSpec spec = Spec(1, "/elsewhere/runs");
  spec.mutable_data()->mutable_text()->set_path("/corpus");
  spec.set_init_from("/data-2/a");
  spec.mutable_profile()->set_directory("/elsewhere/traces");
  spec.mutable_profile()->set_start_step(1);
  v1::Job first;
  ASSERT_TRUE(Submit(spec, &first, "request").ok()) << "no worker can say yet";
  Cancel(first.id());
  ScriptedWorker a(channel_, "a", 1, {}, {"/data-1"}), b(channel_, "b", 1, {}, {"/data-2"});
  for (ScriptedWorker* worker : {&a, &b}) {
    worker->Await([](const auto& m) { return m.has_registered(); });
  }
  for (const bool validate_only : {false, true}) {
    const grpc::Status status = Submit(spec, nullptr, "", validate_only);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(FieldsOf(status), ::testing::ElementsAre("data.text.path", "checkpoint.directory",
                                                         "profile.directory"));
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr("below /data-1 or /data-2"));
  }
  v1::Job again;
  ASSERT_TRUE(Submit(spec, &again, "request").ok());
  EXPECT_EQ(again.id(), first.id());
  spec.mutable_data()->mutable_text()->set_path("corpus");
  spec.mutable_checkpoint()->set_directory("/data-1/runs");
  spec.mutable_profile()->set_directory("/data-2/traces");
  EXPECT_TRUE(Submit(spec).ok());
}

TEST_F(JobServiceTest, ListsByPageAndState) {
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(MustSubmit(Spec()));
  Cancel(ids[0]);
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> listed;
  for (int page = 0; page < 3; ++page) {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    for (const v1::Job& job : response.jobs()) listed.push_back(job.id());
    request.set_page_token(response.next_page_token());
  }
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(listed, ids);
  EXPECT_EQ(request.page_token(), "");
  {
    grpc::ClientContext context;
    v1::ListJobsRequest cancelled;
    cancelled.add_states(v1::JOB_STATE_CANCELLED);
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(&context, cancelled, &response).ok());
    ASSERT_EQ(response.jobs_size(), 1);
    EXPECT_EQ(response.jobs(0).id(), ids.back());
  }
  grpc::ClientContext context;
  request.set_page_token("nonsense");
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// Bug it must catch: a page of a thousand large specs that no client takes.
TEST_F(JobServiceTest, APageOfLargeJobsEndsEarly) {
  v1::JobSpec spec = Spec();
  for (int i = 0; i < 200; ++i) {
    auto* dataset = spec.mutable_data()->mutable_blend()->add_datasets();
    dataset->set_prefix(absl::StrCat("data/", i, std::string(430, 'y')));
    dataset->set_weight(1);
  }
  std::vector<std::string> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(MustSubmit(spec));
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  int pages = 0;
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListJobsResponse response;
    const grpc::Status status = jobs_->ListJobs(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_LT(response.ByteSizeLong(), 3u << 20);
    for (const v1::Job& job : response.jobs()) listed.push_back(job.id());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(listed, ids);
  EXPECT_EQ(pages, 2);
}

TEST_F(JobServiceTest, UnknownJobsAreNotFoundAndNamed) {
  v1::GetJobRequest request;
  request.set_job_id("j-0000000000");
  v1::GetJobResponse response;
  grpc::ClientContext context;
  const grpc::Status status = jobs_->GetJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  google::rpc::Status details;
  google::rpc::ResourceInfo resource;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_TRUE(details.details(0).UnpackTo(&resource));
  EXPECT_EQ(resource.resource_name(), "j-0000000000");

  v1::WatchJobRequest watch;
  watch.set_job_id("j-0000000000");
  grpc::ClientContext watch_context;
  const auto stream = jobs_->WatchJob(&watch_context, watch);
  v1::WatchJobResponse job;
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobServiceTest, WatchStreamsEachChangeUntilTheEndAndResumes) {
  const std::string id = MustSubmit(Spec());
  v1::WatchJobRequest request;
  request.set_job_id(id);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_QUEUED);
  Cancel(id);
  uint64_t revision = 0;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  do {
    EXPECT_GT(response.job().revision(), revision);
    revision = response.job().revision();
    last = response.job().state();
  } while (stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(last, v1::JOB_STATE_CANCELLED);

  request.set_after_revision(revision);
  grpc::ClientContext same;
  const auto nothing = jobs_->WatchJob(&same, request);
  EXPECT_FALSE(nothing->Read(&response));
  EXPECT_TRUE(nothing->Finish().ok());
  request.set_after_revision(revision + 1);
  grpc::ClientContext future;
  const auto wrong = jobs_->WatchJob(&future, request);
  EXPECT_FALSE(wrong->Read(&response));
  EXPECT_EQ(wrong->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

// Clients take 4 MiB at once. All texts of these steps together have more.
TEST_F(JobServiceTest, StepsWithLongTextsComeInSeveralMessages) {
  constexpr uint64_t kSteps = 520;
  const auto worker = Worker("w", 1);
  v1::JobSpec spec = Spec(1, "runs/a");
  spec.set_steps(kSteps + 1);
  const std::string id = MustSubmit(spec);
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  const std::string text(1024, 'x');
  for (uint64_t step = 1; step <= kSteps; ++step) worker->Step(id, 1, 0, step, text);
  Await(id, [](const v1::Job& job) { return job.progress().step() == kSteps; });
  v1::StreamStepsRequest request;
  request.set_job_id(id);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = jobs_->StreamSteps(&context, request);
  uint64_t steps = 0;
  for (v1::StreamStepsResponse response; stream->Read(&response);) {
    for (const v1::StepRecord& record : response.steps()) {
      EXPECT_EQ(record.step(), ++steps);
      EXPECT_EQ(record.generated(7).text(), text);
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(steps, kSteps);
}

TEST_F(JobServiceTest, CancellingTwiceChangesNothing) {
  const std::string id = MustSubmit(Spec());
  const v1::Job first = Cancel(id);
  EXPECT_EQ(first.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Cancel(id).SerializeAsString(), first.SerializeAsString());
}

TEST_F(JobServiceTest, AcknowledgedJobsSurviveARestart) {
  const std::string id = MustSubmit(Spec());
  StopServer();
  StartServer();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_QUEUED);
  v1::ListEventsRequest request;
  request.set_job_id(id);
  v1::ListEventsResponse events;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->ListEvents(&context, request, &events).ok());
  EXPECT_EQ(events.events(0).type(), v1::EVENT_TYPE_SUBMITTED);
}

TEST_F(JobServiceTest, OversizedRequestsAreRefused) {
  v1::JobSpec spec = Spec();
  (*spec.mutable_labels())["big"].assign(2 << 20, 'x');
  EXPECT_EQ(Submit(spec).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Submit(Spec()).ok());
}

TEST_F(JobServiceTest, ServerShutsDownUnderOpenStreams) {
  const std::string id = MustSubmit(Spec());
  v1::WatchJobRequest request;
  request.set_job_id(id);
  grpc::ClientContext context;
  const auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  StopServer();
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

// Bug it must catch: whoever follows a job without output is told, after the controller was away,
// that no controller had ever answered.
TEST_F(JobServiceTest, AStreamIsSaidToBeServedBeforeItHasAMessage) {
  v1::StreamLogsRequest request;
  request.set_job_id(MustSubmit(Spec()));
  request.set_follow(true);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = jobs_->StreamLogs(&context, request);
  stream->WaitForInitialMetadata();
  EXPECT_TRUE(context.GetServerInitialMetadata().contains(kStreamOpen));
  context.TryCancel();
  v1::StreamLogsResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(JobServiceTest, LogsOfARankThatTheJobDoesNotHaveAreRefusedNamingThoseItHas) {
  v1::StreamLogsRequest request;
  request.set_job_id(MustSubmit(Spec(2)));
  for (const uint32_t rank : {1u, 2u}) {
    request.set_rank(rank);
    grpc::ClientContext context;
    const auto stream = jobs_->StreamLogs(&context, request);
    v1::StreamLogsResponse response;
    EXPECT_FALSE(stream->Read(&response));
    const grpc::Status status = stream->Finish();
    if (rank < 2) {
      EXPECT_TRUE(status.ok()) << status.error_message();
    } else {
      EXPECT_EQ(FieldsOf(status), std::vector<std::string>{"rank"});
      EXPECT_THAT(status.error_message(), ::testing::HasSubstr("rank: wanted 0 to 1, found 2"));
    }
  }
}

}  // namespace
}  // namespace trainyard::controller
