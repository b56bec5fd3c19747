// Proves the worker stream end to end: start, steps, exits, restarts of the controller, fencing,
// and that a resent report is acknowledged but not counted again.

#include "controller/service/worker_service.h"

#include <gmock/gmock.h>

#include "controller/service/convert_worker.h"
#include "controller/service/stream_link.h"
#include "tests/controller/testing/server_fixture.h"
#include "tests/testing/full_disk.h"
#include "train/config/resolved_job.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

class WorkerServiceTest : public ServerFixture {
 protected:
  std::vector<std::string> LogsAfter(const std::string& id, uint64_t after) {
    v1::StreamLogsRequest request;
    request.set_job_id(id);
    request.set_after(after);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = jobs_->StreamLogs(&context, request);
    std::vector<std::string> texts;
    for (v1::StreamLogsResponse response; stream->Read(&response);) {
      for (const v1::LogLine& line : response.lines()) texts.push_back(line.text());
    }
    EXPECT_TRUE(stream->Finish().ok());
    return texts;
  }
};

TEST_F(WorkerServiceTest, RunsAJobToItsEnd) {
  auto worker = Worker("w", 2);
  const auto registered =
      worker->Await([](const auto& m) { return m.has_registered(); }).registered();
  EXPECT_EQ(registered.heartbeat_milliseconds(), 2000);
  EXPECT_EQ(registered.lease_milliseconds(), 6000);
  const std::string id = MustSubmit(Spec(2, "runs/a"));
  const v1::StartRanks start = worker->AwaitStart();
  EXPECT_EQ(start.job_id(), id);
  EXPECT_EQ(start.epoch(), 1);
  EXPECT_EQ(start.world(), 2);
  ASSERT_EQ(start.ranks_size(), 2);
  EXPECT_THAT(start.job_config(), HasSubstr("\"preset\":\"llama3-8b\"")) << "for older workers";
  EXPECT_TRUE(IsResolvedJob(start.resolved_job())) << start.resolved_job();
  EXPECT_THAT(start.resolved_job(), Not(HasSubstr("preset")));
  EXPECT_FALSE(start.claimed());
  EXPECT_EQ(start.recorded_step(), 0);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    worker->Say(id, 1, rank, v1::RANK_STATE_STARTING);
    worker->Say(id, 1, rank, v1::RANK_STATE_READY);
  }
  for (uint64_t step = 1; step <= 10; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) worker->Step(id, 1, rank, step);
  }
  worker->Save(id, 1, 10, "runs/a/epoch-1/step-10");
  worker->AwaitAck();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  {
    v1::GetWorkerRequest request;
    request.set_worker_id("w");
    v1::GetWorkerResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(cluster_->GetWorker(&context, request, &response).ok());
    EXPECT_EQ(response.worker().devices(1).job_id(), id);
    EXPECT_EQ(response.worker().devices(1).rank(), 1);
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    worker->Exit(id, 1, rank, v1::EXIT_CAUSE_COMPLETED);
  }
  const v1::Job job = AwaitState(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.progress().step(), 10);
  EXPECT_NEAR(job.progress().loss(), 4.5, 1e-9);
  ASSERT_EQ(job.checkpoints_size(), 1);
  const auto steps = Steps(id);
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[3].step(), 4);
  EXPECT_EQ(steps[3].mfu(), 0.05) << "as the ranks say: nobody computes it again";
  const v1::PhaseSeconds& phases = steps[3].phases();
  EXPECT_EQ(phases.data(), 0.0001);
  EXPECT_EQ(phases.forward(), 0.004);
  EXPECT_EQ(phases.backward(), 0.006);
  EXPECT_EQ(phases.grad_sync(), 0.0002);
  EXPECT_EQ(phases.optimizer(), 0.0003);
  EXPECT_EQ(phases.pipeline_bubble(), 0.0004);
  EXPECT_EQ(phases.checkpoint(), 0.0005);
  EXPECT_EQ(phases.validation(), 0.0006);
}

TEST_F(WorkerServiceTest, FollowedStepsComeInOrderAndEndWithTheJob) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  std::vector<v1::StepRecord> followed;
  std::thread reader([&] { followed = Steps(id, true); });
  for (uint64_t step = 1; step <= 10; ++step) worker->Step(id, 1, 0, step);
  worker->Exit(id, 1, 0, v1::EXIT_CAUSE_COMPLETED);
  reader.join();
  ASSERT_EQ(followed.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(followed[i].step(), i + 1);
}

TEST_F(WorkerServiceTest, KilledRankEndsTheAttemptAndTheNextOneGetsTheCheckpoint) {
  auto a = Worker("a", 1), b = Worker("b", 1);
  const std::string id = MustSubmit(Spec(2, "runs/a"));
  const uint32_t rank_of_a = a->AwaitStart().ranks(0).rank();
  const uint32_t rank_of_b = b->AwaitStart().ranks(0).rank();
  a->Say(id, 1, rank_of_a, v1::RANK_STATE_READY);
  b->Say(id, 1, rank_of_b, v1::RANK_STATE_READY);
  AwaitState(id, v1::JOB_STATE_RUNNING);
  auto& first = rank_of_a == 0 ? a : b;
  first->Save(id, 1, 4, "runs/a/epoch-1/step-4");
  first->AwaitAck();
  b->Exit(id, 1, rank_of_b, v1::EXIT_CAUSE_SIGNAL, 9);
  EXPECT_EQ(a->AwaitStop().epoch(), 1);
  EXPECT_THAT(Get(id).state_reason(), HasSubstr("host-b (worker b) was killed by signal 9"));
  a->Exit(id, 1, rank_of_a, v1::EXIT_CAUSE_STOPPED);
  const v1::StartRanks again = a->AwaitStart();
  EXPECT_EQ(again.epoch(), 2);
  EXPECT_TRUE(again.claimed());
  EXPECT_EQ(again.recorded_step(), 4);
  EXPECT_EQ(Get(id).restarts(), 1);

  // What the first attempt still says is acknowledged, and ignored.
  a->Step(id, 1, rank_of_a, 5);
  b->Exit(id, 1, rank_of_b, v1::EXIT_CAUSE_COMPLETED);
  a->AwaitAck();
  b->AwaitAck();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
  EXPECT_TRUE(Steps(id).empty());
}

// Catches an order that is sent once, into a stream that has just broken.
TEST_F(WorkerServiceTest, CancelReachesAWorkerThatWasAwayAsItWasGiven) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  AwaitState(id, v1::JOB_STATE_RUNNING);
  worker.reset();
  EXPECT_EQ(Cancel(id).state(), v1::JOB_STATE_STOPPING);
  worker = Worker("w", 1, {ScriptedWorker::Status(id, 1, 0, v1::RANK_STATE_READY)});
  const v1::StopRanks stop = worker->AwaitStop();
  EXPECT_EQ(stop.job_id(), id);
  EXPECT_EQ(stop.epoch(), 1);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STOPPING) << "its rank still runs";
  worker->Exit(id, 1, 0, v1::EXIT_CAUSE_STOPPED);
  EXPECT_EQ(AwaitState(id, v1::JOB_STATE_CANCELLED).restarts(), 0);
}

TEST_F(WorkerServiceTest, EventsAndCheckpointsSayWhatTheTrainerFound) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec(1, "runs/a"));
  worker->AwaitStart();
  for (const uint64_t step : {2, 4, 6}) {
    v1::ConnectRequest request;
    auto* report = request.mutable_checkpoint();
    report->set_job_id(id);
    report->mutable_checkpoint()->set_epoch(1);
    report->mutable_checkpoint()->set_step(step);
    for (uint64_t left = std::max<uint64_t>(step - 2, 2); left <= step; left += 2) {
      auto* retained = report->add_retained();
      retained->set_epoch(1);
      retained->set_step(left);
    }
    report->mutable_best()->set_epoch(1);
    report->mutable_best()->set_step(step - 2);
    report->mutable_best()->set_validation_loss(1.25);
    worker->Send(request);
  }
  worker->Exit(id, 1, 0, v1::EXIT_CAUSE_OTHER);
  worker->AwaitStart();
  const v1::Job job = Get(id);
  ASSERT_EQ(job.checkpoints_size(), 2);
  EXPECT_EQ(job.checkpoints(0).step(), 4);
  EXPECT_EQ(job.best_checkpoint().step(), 4);
  EXPECT_EQ(job.best_checkpoint().validation_loss(), 1.25);
  v1::ConnectRequest ready;
  *ready.mutable_rank_status() = ScriptedWorker::Status(id, 2, 0, v1::RANK_STATE_READY);
  ready.mutable_rank_status()->set_resumed_step(4);
  ready.mutable_rank_status()->add_refused("step-6: torn");
  worker->Send(ready);
  worker->AwaitAck();
  EXPECT_EQ(Get(id).progress().step(), 4);
  EXPECT_EQ(Get(id).best_checkpoint().step(), 4) << "the attempt could not list any";
  v1::ListEventsRequest request;
  request.set_job_id(id);
  v1::ListEventsResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->ListEvents(&context, request, &response).ok());
  const v1::Event& warning = response.events(response.events_size() - 2);
  EXPECT_EQ(warning.type(), v1::EVENT_TYPE_WARNING);
  EXPECT_EQ(warning.message(),
            "checkpoint refused: step-6: torn; resuming from the checkpoint of step 4");
}

TEST_F(WorkerServiceTest, RunningJobOutlivesTheController) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  worker->Step(id, 1, 0, 1);
  worker->AwaitAck();
  const uint64_t sequence = worker->sequence();
  StopServer();
  worker.reset();
  StartServer();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(id).progress().step(), 1);
  worker = Worker("w", 1, {ScriptedWorker::Status(id, 1, 0, v1::RANK_STATE_READY)});
  worker->set_sequence(sequence - 1);
  worker->Step(id, 1, 0, 1);  // Resent: the worker did not see the acknowledgement.
  for (uint64_t step = 2; step <= 10; ++step) worker->Step(id, 1, 0, step);
  worker->Exit(id, 1, 0, v1::EXIT_CAUSE_COMPLETED);
  const v1::Job job = AwaitState(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_EQ(Steps(id).size(), 10u);
}

// Catches a controller that reads on and on while it can store nothing of what it reads; and, the
// other way, one that loses what it has not read, or a worker whose heartbeats it has not read.
TEST_F(WorkerServiceTest, WorkerIsReadAsFarAsItsReportsAreStored) {
  v1::JobSpec spec = Spec(1);
  spec.set_steps(1000);
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(spec);
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  worker->AwaitAck();
  v1::ConnectRequest set, get;
  set.mutable_rendezvous_set()->set_job_id(id);
  set.mutable_rendezvous_set()->set_epoch(1);
  set.mutable_rendezvous_set()->set_key("key");
  get.mutable_rendezvous_get()->set_job_id(id);
  get.mutable_rendezvous_get()->set_epoch(1);
  get.mutable_rendezvous_get()->set_key("key");
  {
    const FullDisk full;
    for (uint64_t step = 1; step <= 2 * StreamLink::kWindow; ++step) worker->Step(id, 1, 0, step);
    worker->Send(set, false);
    worker->Send(get, false);
    EXPECT_FALSE(Submit(spec).ok());
  }
  // Were it read past the window, the answer would be there before anything is stored.
  const auto first =
      worker->Await([](const auto& m) { return m.has_ack() || m.has_rendezvous_value(); });
  EXPECT_TRUE(first.has_ack());
  worker->Await([](const auto& m) { return m.has_rendezvous_value(); });
  worker->Beat();
  Await(id, [](const v1::Job& job) { return job.progress().step() == 2 * StreamLink::kWindow; });
  EXPECT_EQ(Steps(id).size(), 2u * StreamLink::kWindow);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
}

// Catches a read into a stream that is gone, once the disk takes what it had said.
TEST_F(WorkerServiceTest, StreamMayBreakWhileItIsNotRead) {
  v1::JobSpec spec = Spec(1);
  spec.set_steps(1000);
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(spec);
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  worker->AwaitAck();
  const auto tell = [&] {
    for (uint64_t step = 1; step <= 2 * StreamLink::kWindow; ++step) worker->Step(id, 1, 0, step);
  };
  {
    const FullDisk full;
    tell();
    EXPECT_FALSE(Submit(spec).ok());
    worker.reset();
  }
  worker = Worker("w", 1, {ScriptedWorker::Status(id, 1, 0, v1::RANK_STATE_READY)});
  tell();
  worker->AwaitAck();
  EXPECT_EQ(Steps(id).size(), 2u * StreamLink::kWindow);
}

TEST_F(WorkerServiceTest, StaleRanksOfAReturningWorkerAreStopped) {
  auto worker =
      Worker("w", 1, {ScriptedWorker::Status("j-0000000000", 3, 0, v1::RANK_STATE_READY)});
  const v1::StopRanks stop = worker->AwaitStop();
  EXPECT_EQ(stop.job_id(), "j-0000000000");
  EXPECT_EQ(stop.epoch(), 3);
  const std::string id = MustSubmit(Spec());
  Await(id, [](const v1::Job& job) { return !job.state_reason().empty(); });
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_QUEUED) << "the device is not free";
  worker->Exit("j-0000000000", 3, 0, v1::EXIT_CAUSE_STOPPED);
  EXPECT_EQ(worker->AwaitStart().job_id(), id);
}

TEST_F(WorkerServiceTest, RanksMeetThroughTheRelay) {
  auto a = Worker("a", 1), b = Worker("b", 1);
  const std::string id = MustSubmit(Spec(2));
  a->AwaitStart();
  b->AwaitStart();
  v1::ConnectRequest get, set;
  get.mutable_rendezvous_get()->set_job_id(id);
  get.mutable_rendezvous_get()->set_epoch(1);
  get.mutable_rendezvous_get()->set_key("gloo/0");
  b->Send(get, false);
  set.mutable_rendezvous_set()->set_job_id(id);
  set.mutable_rendezvous_set()->set_epoch(1);
  set.mutable_rendezvous_set()->set_key("gloo/0");
  set.mutable_rendezvous_set()->set_value(std::string("\0address", 8));
  a->Send(set, false);
  const auto value =
      b->Await([](const auto& m) { return m.has_rendezvous_value(); }).rendezvous_value();
  EXPECT_EQ(value.key(), "gloo/0");
  EXPECT_EQ(value.value(), std::string("\0address", 8));
}

TEST_F(WorkerServiceTest, LogsAreKeptAndFollowed) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  v1::StreamLogsRequest request;
  request.set_job_id(id);
  request.set_follow(true);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = jobs_->StreamLogs(&context, request);
  v1::ConnectRequest log;
  log.mutable_log()->set_job_id(id);
  for (const char* text : {"first", "second"}) log.mutable_log()->add_lines()->set_text(text);
  worker->Send(log, false);
  v1::StreamLogsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.lines(0).text(), "first");
  EXPECT_EQ(response.lines(0).n(), 1u);
  EXPECT_EQ(LogsAfter(id, 0), std::vector<std::string>({"first", "second"}));
  EXPECT_EQ(LogsAfter(id, 1), std::vector<std::string>{"second"});
  for (const uint64_t after : {uint64_t{2}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_EQ(LogsAfter(id, after), std::vector<std::string>()) << after;
  }
  worker->Exit(id, 1, 0, v1::EXIT_CAUSE_BAD_INPUT);
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
}

TEST_F(WorkerServiceTest, StrangersAreTurnedAway) {
  const auto first_word = [&](const v1::ConnectRequest& request) {
    const auto stub = v1::WorkerService::NewStub(channel_);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = stub->Connect(&context);
    stream->Write(request);
    v1::ConnectResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  };
  v1::ConnectRequest request;
  request.mutable_heartbeat();
  EXPECT_EQ(first_word(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_register_()->set_protocol_version(1);
  request.mutable_register_()->set_worker_id("w");
  request.mutable_register_()->set_version("0.0.9");
  const grpc::Status status = first_word(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Trainyard 0.0.9, speaks version 1 of"));
  EXPECT_THAT(status.error_message(), HasSubstr("Trainyard 0.1.0, speaks version 2"));
  EXPECT_THAT(status.error_message(), HasSubstr("docs/upgrade.md"));
  request.mutable_register_()->set_protocol_version(kWorkerProtocolVersion);
  request.mutable_register_()->set_hostname(std::string(257, 'h'));
  const grpc::Status wordy = first_word(request);
  EXPECT_EQ(wordy.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(wordy.error_message(),
              HasSubstr("Register.hostname: wanted at most 256 bytes, found 257"));
}

// Catches a controller that keeps whatever a worker says: 900 KB of a made-up job took as much
// memory, and as much of the log.
TEST_F(WorkerServiceTest, AMadeUpJobIdEndsTheStream) {
  auto worker = Worker("w", 1);
  worker->Await([](const auto& m) { return m.has_registered(); });
  worker->Say(std::string(900'000, 'j'), 1, 0, v1::RANK_STATE_READY);
  const grpc::Status status = worker->AwaitEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_LT(status.error_message().size(), 200u);
}

// Catches orders that pile up without end for a worker that takes none.
TEST_F(WorkerServiceTest, AWorkerThatReadsNothingIsGivenUp) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  v1::ConnectRequest request;
  request.mutable_register_()->set_protocol_version(2);
  request.mutable_register_()->set_worker_id("w");
  request.mutable_register_()->add_devices()->set_kind(v1::DEVICE_KIND_CPU);
  stream->Write(request);
  const std::string id = MustSubmit(Spec());
  v1::ConnectResponse response;
  while (stream->Read(&response) && !response.has_start_ranks()) continue;
  v1::ConnectRequest set, get;
  set.mutable_rendezvous_set()->set_job_id(id);
  set.mutable_rendezvous_set()->set_epoch(1);
  set.mutable_rendezvous_set()->set_key("k");
  set.mutable_rendezvous_set()->set_value(std::string(65'000, 'v'));
  get.mutable_rendezvous_get()->set_job_id(id);
  get.mutable_rendezvous_get()->set_epoch(1);
  get.mutable_rendezvous_get()->set_key("k");
  stream->Write(set);
  size_t asked = 0;
  while (asked < 20'000 && stream->Write(get)) ++asked;
  EXPECT_LT(asked, 20'000u) << "1.3 GB wait to be sent";
  context.TryCancel();
  (void)stream->Finish();
}

TEST_F(WorkerServiceTest, SecondStreamOfAWorkerEndsTheFirst) {
  auto first = Worker("w", 1);
  first->Await([](const auto& m) { return m.has_registered(); });
  auto second = Worker("w", 1);
  EXPECT_EQ(first->AwaitEnd().error_code(), grpc::StatusCode::ABORTED);
  second->Await([](const auto& m) { return m.has_registered(); });
}

// What the worker says of a GPU is what clients are told.
TEST_F(WorkerServiceTest, AGpuIsListedAsItsWorkerRegisteredIt) {
  v1::Device gpu;
  gpu.set_index(1);
  gpu.set_kind(v1::DEVICE_KIND_CUDA);
  gpu.set_model("NVIDIA H200");
  gpu.set_memory_bytes(150'000'000'000);
  gpu.mutable_gpu()->set_index(5);
  gpu.mutable_gpu()->set_uuid("GPU-8a56a4bc");
  gpu.mutable_gpu()->set_driver_version("580.65.06");
  gpu.mutable_gpu()->set_compute_capability("9.0");
  auto* peak = gpu.add_peak();
  peak->set_dtype("bf16");
  peak->set_flops(989e12);
  ScriptedWorker worker(channel_, "w", 0, {}, {},
                        [&](v1::Register& message) { *message.add_devices() = gpu; });
  worker.Await([](const auto& m) { return m.has_registered(); });
  v1::GetWorkerRequest request;
  request.set_worker_id("w");
  v1::GetWorkerResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(cluster_->GetWorker(&context, request, &response).ok());
  ASSERT_EQ(response.worker().devices_size(), 1);
  EXPECT_EQ(response.worker().devices(0).SerializeAsString(), gpu.SerializeAsString());
}

}  // namespace
}  // namespace trainyard::controller
