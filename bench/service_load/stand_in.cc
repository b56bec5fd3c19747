#include "bench/service_load/stand_in.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "security/channel.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard {
namespace {

constexpr int kDevices = 8;
// As trainyard-worker has them.
constexpr uint32_t kProtocolVersion = 2;
constexpr absl::Duration kRegisterTimeout = absl::Seconds(30);
// One beat of so many is a message that the controller acknowledges.
constexpr uint64_t kAnswerEvery = 10;
constexpr uint64_t kSpread = 997;

// What a report of one rank's step says. The values are made up, and there is one of each.
v1::ConnectRequest StepOf(const v1::RankStatus& rank, uint64_t step) {
  v1::ConnectRequest request;
  v1::StepReport& report = *request.mutable_step();
  report.set_job_id(rank.job_id());
  report.set_rank(rank.rank());
  report.set_model_flops(1e12);
  v1::StepRecord& record = *report.mutable_record();
  record.set_step(step);
  record.set_epoch(rank.epoch());
  record.set_loss(2 + 1.0 / double(step));
  record.set_validation_loss(3);
  record.set_grad_norm(1);
  record.set_learning_rate(1e-3);
  record.set_tokens(4096);
  record.set_seconds(1);
  record.mutable_phases()->set_forward(0.4);
  record.mutable_phases()->set_backward(0.6);
  for (const char* op : {"all_gather", "reduce_scatter_sum", "all_reduce_sum"}) {
    for (const char* group : {"data", "tensor"}) {
      v1::CollectiveUse& use = *report.add_collectives();
      use.set_op(op);
      use.set_group(group);
      use.set_calls(1);
      use.set_bytes(1 << 20);
      use.set_seconds(0.01);
    }
  }
  return request;
}

std::shared_ptr<grpc::Channel> DialAs(const Fleet& fleet, const Credential& credential) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Dial(fleet.controller, credential, arguments);
}

}  // namespace

void Tally::Answered(absl::Duration took) {
  const MutexLock lock(mutex_);
  answers_.push_back(took);
}

std::string Tally::Line(int64_t registered) {
  std::vector<absl::Duration> answers;
  {
    const MutexLock lock(mutex_);
    answers.swap(answers_);
  }
  std::string times;
  for (const absl::Duration answer : answers) {
    absl::StrAppend(&times, times.empty() ? "" : ", ", absl::ToInt64Microseconds(answer));
  }
  return absl::StrCat("{\"at\": ", absl::ToDoubleSeconds(RealClock().Monotonic()),
                      ", \"registered\": ", registered, ", \"lost\": ", lost_.exchange(0),
                      ", \"failed\": ", failed_.exchange(0), ", \"beats\": ", beats_.exchange(0),
                      ", \"answers_us\": [", times, "]}");
}

// One connection's. Lives until gRPC is done with it, at least. Thread-safe.
class StandIn::Stream final
    : public grpc::ClientBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  enum class State { kConnecting, kRegistered, kDone };

  Stream(const std::shared_ptr<grpc::Channel>& channel, Tally& tally)
      : stub_(v1::WorkerService::NewStub(channel)), tally_(tally) {}

  static std::shared_ptr<Stream> Start(const std::shared_ptr<grpc::Channel>& channel, Tally& tally,
                                       v1::Register first) {
    auto stream = std::make_shared<Stream>(channel, tally);
    tally.Connecting(1);
    stream->self_ = stream;
    stream->stub_->async()->Connect(&stream->context_, stream.get());
    *stream->request_.mutable_register_() = std::move(first);
    stream->AddHold();  // Beats are written by another thread.
    stream->StartWrite(&stream->request_);
    stream->StartRead(&stream->response_);
    stream->StartCall();
    return stream;
  }

  State state() const { return state_; }
  bool was_registered() const { return beat_milliseconds_ > 0; }
  absl::Duration beat() const { return absl::Milliseconds(beat_milliseconds_.load()); }

  void Beat(bool answered) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (writing_ || ended_) return;
    for (RunningRank& rank : ranks_) reports_.push_back(StepOf(rank.status, ++rank.step));
    request_.Clear();
    if (answered && asked_ == absl::ZeroDuration()) {
      request_.set_sequence(++sequence_);
      asked_ = RealClock().Monotonic();
    } else {
      request_.mutable_heartbeat();
    }
    Write();
    tally_.Beat();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        const MutexLock lock(mutex_);
        ended_ = true;
      }
      return RemoveHold();
    }
    if (response_.has_registered()) {
      if (!was_registered()) tally_.Connecting(-1);
      beat_milliseconds_ = response_.registered().heartbeat_milliseconds();
      state_ = State::kRegistered;
    }
    if (response_.has_start_ranks()) Run(response_.start_ranks());
    if (response_.has_ack()) Answered();
    StartRead(&response_);
  }
  void OnWriteDone(bool) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (reports_.empty() || ended_) return;
    request_ = std::move(reports_.front());
    reports_.pop_front();
    request_.set_sequence(++sequence_);
    Write();
  }
  void OnDone(const grpc::Status&) override {
    if (!was_registered()) tally_.Connecting(-1);
    state_ = State::kDone;
    self_.reset();
  }

 private:
  struct RunningRank {
    v1::RankStatus status;
    uint64_t step = 0;  // The last one that was reported.
  };

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    StartWrite(&request_);
  }
  // The ranks are ready at once, and each finishes a step with every beat.
  void Run(const v1::StartRanks& order) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    for (const v1::RankPlacement& placement : order.ranks()) {
      v1::ConnectRequest ready;
      v1::RankStatus& status = *ready.mutable_rank_status();
      status.set_job_id(order.job_id());
      status.set_epoch(order.epoch());
      status.set_rank(placement.rank());
      status.set_device(placement.device());
      status.set_state(v1::RANK_STATE_READY);
      ranks_.push_back({.status = status});
      reports_.push_back(std::move(ready));
    }
  }
  void Answered() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (asked_ == absl::ZeroDuration()) return;
    tally_.Answered(RealClock().Monotonic() - asked_);
    asked_ = absl::ZeroDuration();
  }

  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  Tally& tally_;
  std::shared_ptr<Stream> self_;
  grpc::ClientContext context_;
  v1::ConnectResponse response_;
  v1::ConnectRequest request_;
  std::atomic<State> state_ = State::kConnecting;
  std::atomic<uint32_t> beat_milliseconds_ = 0;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<RunningRank> ranks_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::ConnectRequest> reports_ ABSL_GUARDED_BY(mutex_);  // To be written, oldest first.
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration asked_ ABSL_GUARDED_BY(mutex_);  // When; zero: no answer is awaited.
};

StandIn::StandIn(const Fleet& fleet, std::string id, Tally& tally)
    : fleet_(fleet),
      id_(std::move(id)),
      tally_(tally),
      beats_(std::hash<std::string>()(id_) % kSpread) {}

StandIn::~StandIn() = default;

bool StandIn::registered() const {
  return phase_ == Phase::kConnected && stream_->state() == Stream::State::kRegistered;
}

absl::Status StandIn::Join(const std::string& token) {
  ASSIGN_OR_RETURN(identity_.key_pem, NewKey());
  v1::JoinRequest request;
  request.set_worker_id(id_);
  request.set_hostname(id_);
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), NewRequest(identity_.key_pem, id_));
  const auto stub =
      v1::AccessService::NewStub(DialAs(fleet_, {.token = token, .authorities = fleet_.authority}));
  for (;;) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::JoinResponse response;
    const grpc::Status status = stub->Join(&context, request, &response);
    identity_.certificate_pem = response.certificates();
    if (status.error_code() != grpc::RESOURCE_EXHAUSTED) {
      return absl::Status(absl::StatusCode(status.error_code()), status.error_message());
    }
    absl::SleepFor(absl::Milliseconds(200));  // The controller limits the calls of one token.
  }
}

void StandIn::Connect() {
  if (phase_ != Phase::kToConnect) return;
  v1::Register first;
  first.set_protocol_version(kProtocolVersion);
  first.set_worker_id(id_);
  first.set_instance_id(absl::StrCat(id_, "-1"));
  first.set_hostname(id_);
  first.set_version(Version());
  for (int i = 0; i < kDevices; ++i) {
    v1::Device& device = *first.add_devices();
    device.set_index(uint32_t(i));
    device.set_kind(v1::DEVICE_KIND_CPU);
    device.set_model("none (stands in)");
    device.set_threads(1);
    device.add_peak()->set_dtype("f32");
    device.mutable_peak(0)->set_flops(1e14);
  }
  first.add_roots(std::string("/"));
  const Credential credential = {.authorities = fleet_.authority, .identity = identity_};
  stream_ = Stream::Start(DialAs(fleet_, credential), tally_, std::move(first));
  beating_ = false;
  due_ = RealClock().Monotonic() + kRegisterTimeout;
  phase_ = Phase::kConnected;
}

void StandIn::Work(absl::Duration now) {
  if (phase_ == Phase::kToConnect) return;
  if (phase_ == Phase::kWaiting) {
    if (now >= due_) phase_ = Phase::kToConnect;
    return;
  }
  if (stream_->state() == Stream::State::kDone) {
    tally_.Ended(stream_->was_registered());
    due_ = now + reconnect_.After(stream_->was_registered());
    stream_.reset();
    phase_ = Phase::kWaiting;
    return;
  }
  if (registered() && !beating_) {
    // Spread over the time of a beat, so that connections which were made at once beat apart.
    beating_ = true;
    due_ = now + double(beats_ % kSpread) / kSpread * stream_->beat();
  }
  if (now < due_) return;
  if (beating_) {
    stream_->Beat(++beats_ % kAnswerEvery == 0);
    due_ += stream_->beat();
  } else {
    stream_->Cancel();
    due_ = absl::InfiniteDuration();
  }
}

}  // namespace trainyard
