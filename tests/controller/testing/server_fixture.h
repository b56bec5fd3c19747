// A real controller on loopback, its clients, and scripted workers on real streams.

#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "controller/service/server.h"
#include "security/channel.h"
#include "tests/controller/testing/temp_directory.h"
#include "trainyard/v1/cluster.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"
#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard::controller {

// How long a test waits for what must come.
inline constexpr auto kPatience = std::chrono::seconds(20);

// One worker's stream: sends what it is told to, and collects what arrives.
class ScriptedWorker {
 public:
  ScriptedWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& id,
                 uint32_t devices, const std::vector<v1::RankStatus>& running = {},
                 const std::vector<std::string>& roots = {},
                 const std::function<void(v1::Register&)>& edit = nullptr)
      : id_(id), stub_(v1::WorkerService::NewStub(channel)), stream_(stub_->Connect(&context_)) {
    v1::ConnectRequest request;
    auto* m = request.mutable_register_();
    m->set_protocol_version(2);
    m->set_worker_id(id);
    m->set_instance_id(id + "-1");
    m->set_hostname("host-" + id);
    for (uint32_t i = 0; i < devices; ++i) {
      auto* device = m->add_devices();
      device->set_index(i);
      device->set_kind(v1::DEVICE_KIND_CPU);
      device->set_model("cpu (1 thread, test)");
      device->set_threads(1);
      auto* peak = device->add_peak();
      peak->set_dtype("f32");
      peak->set_flops(1e9);
    }
    for (const v1::RankStatus& status : running) *m->add_running() = status;
    for (const std::string& root : roots) m->add_roots(root);
    if (edit) edit(*m);
    stream_->Write(request);
    reader_ = std::thread([this] { Read(); });
  }
  ~ScriptedWorker() {
    context_.TryCancel();
    reader_.join();
  }

  const std::string& id() const { return id_; }
  void Send(v1::ConnectRequest request, bool sequenced = true) {
    if (sequenced) request.set_sequence(++sequence_);
    stream_->Write(request);
  }
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }  // Of an earlier stream.

  void Beat() {
    v1::ConnectRequest request;
    request.mutable_heartbeat();
    Send(request, false);
  }
  void Say(const std::string& job, uint64_t epoch, uint32_t rank, v1::RankState state) {
    v1::ConnectRequest request;
    *request.mutable_rank_status() = Status(job, epoch, rank, state);
    Send(request);
  }
  void Exit(const std::string& job, uint64_t epoch, uint32_t rank, v1::ExitCause cause,
            int signal = 0) {
    v1::ConnectRequest request;
    *request.mutable_rank_status() = Status(job, epoch, rank, v1::RANK_STATE_EXITED);
    request.mutable_rank_status()->set_cause(cause);
    request.mutable_rank_status()->set_signal(signal);
    Send(request);
  }
  static v1::RankStatus Status(const std::string& job, uint64_t epoch, uint32_t rank,
                               v1::RankState state) {
    v1::RankStatus status;
    status.set_job_id(job);
    status.set_epoch(epoch);
    status.set_rank(rank);
    status.set_state(state);
    return status;
  }
  // `wrote`: the text that the model wrote after each of 8 prompts; "": there are none.
  void Step(const std::string& job, uint64_t epoch, uint32_t rank, uint64_t step,
            const std::string& wrote = "") {
    v1::ConnectRequest request;
    auto* report = request.mutable_step();
    report->set_job_id(job);
    report->set_rank(rank);
    report->set_model_flops(1'000'000);
    report->set_peak_flops(2e9);
    auto* record = report->mutable_record();
    record->set_step(step);
    record->set_epoch(epoch);
    record->set_loss(5.5 - 0.1 * double(step));
    record->set_tokens(128);
    record->set_seconds(0.01);
    record->set_mfu(0.05);
    for (int i = 0; i < 8 && !wrote.empty(); ++i) record->add_generated()->set_text(wrote);
    auto* phases = record->mutable_phases();  // All different.
    phases->set_data(0.0001);
    phases->set_forward(0.004);
    phases->set_backward(0.006);
    phases->set_grad_sync(0.0002);
    phases->set_optimizer(0.0003);
    phases->set_pipeline_bubble(0.0004);
    phases->set_checkpoint(0.0005);
    phases->set_validation(0.0006);
    record->mutable_finish_time()->set_seconds(1'800'000'000 + int64_t(step));
    Send(request);
  }
  void Save(const std::string& job, uint64_t epoch, uint64_t step, const std::string& path) {
    v1::ConnectRequest request;
    request.mutable_checkpoint()->set_job_id(job);
    request.mutable_checkpoint()->set_duration_seconds(0.1);
    auto* checkpoint = request.mutable_checkpoint()->mutable_checkpoint();
    checkpoint->set_step(step);
    checkpoint->set_epoch(epoch);
    checkpoint->set_path(path);
    checkpoint->set_size_bytes(1234);
    Send(request);
  }

  // The first message that `wanted` accepts; earlier ones are dropped. Fails the test after a
  // while.
  v1::ConnectResponse Await(const std::function<bool(const v1::ConnectResponse&)>& wanted) {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      while (!received_.empty()) {
        v1::ConnectResponse message = std::move(received_.front());
        received_.pop_front();
        if (wanted(message)) return message;
      }
      if (ended_ || changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
        ADD_FAILURE() << "the order did not come";
        return {};
      }
    }
  }
  v1::StartRanks AwaitStart() {
    return Await([](const auto& m) { return m.has_start_ranks(); }).start_ranks();
  }
  v1::StopRanks AwaitStop() {
    return Await([](const auto& m) { return m.has_stop_ranks(); }).stop_ranks();
  }
  void AwaitAck() {  // Of everything sent so far.
    Await([&](const auto& m) { return m.has_ack() && m.ack().sequence() >= sequence_; });
  }
  grpc::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return ended_; }));
    return status_;
  }

 private:
  void Read() {
    v1::ConnectResponse message;
    while (stream_->Read(&message)) {
      std::lock_guard lock(mutex_);
      received_.push_back(message);
      changed_.notify_all();
    }
    const grpc::Status status = stream_->Finish();
    std::lock_guard lock(mutex_);
    status_ = status;
    ended_ = true;
    changed_.notify_all();
  }

  const std::string id_;
  uint64_t sequence_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
  std::thread reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::ConnectResponse> received_;
  bool ended_ = false;
  grpc::Status status_;
};

class ServerFixture : public ::testing::Test {
 protected:
  explicit ServerFixture(const Clock& clock = RealClock()) : clock_(clock) { StartServer(); }
  ~ServerFixture() override { StopServer(); }

  void StartServer(const std::function<void(ServerOptions&)>& edit = nullptr) {
    ServerOptions options;
    options.state_directory = directory_.path() + "/state";
    options.listen = {"127.0.0.1", port_};  // The same one after a restart, as workers expect.
    options.tick_every = absl::Milliseconds(20);
    options.coordinator.gauges_every = {};
    if (edit) edit(options);
    auto server = Server::Start(options, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->address().port;
    NewChannel();
  }
  void StopServer() { server_.reset(); }
  void NewChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);
    channel_ =
        Dial(server_->address().ToString(), {.token = server_->access().local_token()}, arguments);
    jobs_ = v1::JobService::NewStub(channel_);
    cluster_ = v1::ClusterService::NewStub(channel_);
  }

  static v1::JobSpec Spec(uint32_t devices = 1, const std::string& directory = "") {
    v1::JobSpec spec;
    spec.set_name("tiny");
    spec.mutable_model()->set_preset("llama3-8b");
    auto* overrides = spec.mutable_model()->mutable_overrides();
    overrides->set_layers(2);
    overrides->set_hidden(64);
    overrides->set_ffn(128);
    overrides->set_heads(4);
    overrides->set_kv_heads(2);
    overrides->set_vocab(256);
    spec.set_precision(v1::PRECISION_F32);
    spec.mutable_batch()->set_global(4);
    spec.mutable_batch()->set_micro(1);
    spec.mutable_batch()->set_sequence(32);
    spec.mutable_data()->mutable_synthetic();
    spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-3);
    spec.set_steps(10);
    spec.set_devices(devices);
    if (!directory.empty()) {
      spec.mutable_checkpoint()->set_directory(directory);
      spec.mutable_checkpoint()->set_every_steps(2);
    }
    return spec;
  }

  // A context with a deadline, as every client call has.
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
  }
  grpc::Status Submit(const v1::JobSpec& spec, v1::Job* job = nullptr,
                      const std::string& request_id = "", bool validate_only = false) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    request.set_validate_only(validate_only);
    v1::SubmitJobResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = jobs_->SubmitJob(&context, request, &response);
    if (job != nullptr) *job = response.job();
    return status;
  }
  std::string MustSubmit(const v1::JobSpec& spec) {
    v1::Job job;
    const grpc::Status status = Submit(spec, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.id();
  }
  v1::Job Get(const std::string& id) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::GetJobResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = jobs_->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  // Follows the job until `wanted`; fails the test if it ends before.
  v1::Job Await(const std::string& id, const std::function<bool(const v1::Job&)>& wanted) {
    v1::WatchJobRequest request;
    request.set_job_id(id);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    bool found = false;
    while (!found && stream->Read(&response)) found = wanted(response.job());
    context.TryCancel();
    while (stream->Read(&response)) {
    }
    (void)stream->Finish();
    EXPECT_TRUE(found) << "last: " << response.job().ShortDebugString();
    return response.job();
  }
  v1::Job AwaitState(const std::string& id, v1::JobState state) {
    return Await(id, [&](const v1::Job& job) { return job.state() == state; });
  }
  v1::Job Cancel(const std::string& id) {
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = jobs_->CancelJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  std::vector<v1::StepRecord> Steps(const std::string& id, bool follow = false) {
    v1::StreamStepsRequest request;
    request.set_job_id(id);
    request.set_follow(follow);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = jobs_->StreamSteps(&context, request);
    std::vector<v1::StepRecord> steps;
    v1::StreamStepsResponse response;
    while (stream->Read(&response)) {
      steps.insert(steps.end(), response.steps().begin(), response.steps().end());
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return steps;
  }
  std::unique_ptr<ScriptedWorker> Worker(const std::string& id, uint32_t devices,
                                         const std::vector<v1::RankStatus>& running = {}) {
    return std::make_unique<ScriptedWorker>(channel_, id, devices, running);
  }

  const Clock& clock_;
  const TempDirectory directory_;
  int port_ = 0;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

}  // namespace trainyard::controller
