#include "tests/worker/service/fake_controller.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {

using Stream = grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>;

class FakeController::Service final : public v1::WorkerService::Service {
 public:
  grpc::Status Connect(grpc::ServerContext* context, Stream* stream) override {
    {
      const std::lock_guard lock(mutex_);
      context_ = context;
      stream_ = stream;
    }
    v1::ConnectRequest request;
    while (stream->Read(&request)) {
      Handle(request, stream);
      const std::lock_guard lock(mutex_);
      if (!refusal_.empty()) return {grpc::StatusCode::FAILED_PRECONDITION, refusal_};
    }
    const std::lock_guard lock(mutex_);
    if (stream_ == stream) {
      stream_ = nullptr;
      context_ = nullptr;
    }
    return grpc::Status::OK;
  }

  void Break() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  bool Send(const v1::ConnectResponse& response) {
    const std::lock_guard lock(mutex_);
    return stream_ != nullptr && stream_->Write(response);
  }

  void set_acknowledge(bool acknowledge) {
    const std::lock_guard lock(mutex_);
    acknowledge_ = acknowledge;
  }
  void set_beat(uint32_t milliseconds) {
    const std::lock_guard lock(mutex_);
    beat_milliseconds_ = milliseconds;
  }
  void set_admit(bool admit) {
    const std::lock_guard lock(mutex_);
    admit_ = admit;
  }
  void set_refusal(const std::string& message) {
    const std::lock_guard lock(mutex_);
    refusal_ = message;
    admit_ = false;
  }

  std::vector<v1::ConnectRequest> received() const {
    const std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  void Handle(const v1::ConnectRequest& request, Stream* stream) {
    const std::lock_guard lock(mutex_);
    received_.push_back(request);
    v1::ConnectResponse response;
    if (request.has_register_()) {
      if (!admit_) return;
      response.mutable_registered()->set_heartbeat_milliseconds(beat_milliseconds_);
      response.mutable_registered()->set_lease_milliseconds(6000);
      stream->Write(response);
    } else if (request.sequence() > 0 && acknowledge_) {
      response.mutable_ack()->set_sequence(request.sequence());
      stream->Write(response);
    }
  }

  mutable std::mutex mutex_;
  grpc::ServerContext* context_ = nullptr;
  Stream* stream_ = nullptr;
  bool acknowledge_ = true;
  bool admit_ = true;
  std::string refusal_;
  uint32_t beat_milliseconds_ = 2000;
  std::vector<v1::ConnectRequest> received_;
};

FakeController::FakeController() : service_(std::make_unique<Service>()) {
  address_ = "127.0.0.1:0";
  ComeBack();
}

FakeController::~FakeController() {
  if (server_ != nullptr) GoAway();
}

void FakeController::GoAway() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeController::ComeBack() {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr && port > 0) << address_;
  address_ = absl::StrCat("127.0.0.1:", port);
}

void FakeController::BreakConnection() { service_->Break(); }
void FakeController::set_acknowledge(bool acknowledge) { service_->set_acknowledge(acknowledge); }
void FakeController::set_beat_milliseconds(uint32_t beat) { service_->set_beat(beat); }
void FakeController::set_admit(bool admit) { service_->set_admit(admit); }
void FakeController::set_refusal(const std::string& message) { service_->set_refusal(message); }
bool FakeController::Send(const v1::ConnectResponse& response) { return service_->Send(response); }

bool FakeController::Acknowledge(uint64_t sequence) {
  v1::ConnectResponse response;
  response.mutable_ack()->set_sequence(sequence);
  return Send(response);
}

bool FakeController::Start(const v1::StartRanks& order) {
  v1::ConnectResponse response;
  *response.mutable_start_ranks() = order;
  return Send(response);
}

bool FakeController::Stop(const std::string& job_id, uint64_t epoch, v1::StopMode mode) {
  v1::ConnectResponse response;
  v1::StopRanks& stop = *response.mutable_stop_ranks();
  stop.set_job_id(job_id);
  stop.set_epoch(epoch);
  stop.set_mode(mode);
  return Send(response);
}

std::vector<v1::ConnectRequest> FakeController::received() const { return service_->received(); }

v1::ConnectRequest FakeController::Await(
    const std::function<bool(const v1::ConnectRequest&)>& fits) const {
  v1::ConnectRequest found;
  WaitFor([&] {
    for (const v1::ConnectRequest& request : received()) {
      if (!fits(request)) continue;
      found = request;
      return true;
    }
    return false;
  });
  return found;
}

v1::RankStatus FakeController::AwaitRank(const std::string& job_id, uint64_t epoch,
                                         v1::RankState state) const {
  return Await([&](const v1::ConnectRequest& request) {
           const v1::RankStatus& status = request.rank_status();
           return status.job_id() == job_id && status.epoch() == epoch && status.state() == state;
         })
      .rank_status();
}

v1::Register FakeController::AwaitRegister(size_t count) const {
  v1::Register last;
  WaitFor([&] {
    size_t seen = 0;
    for (const v1::ConnectRequest& request : received()) {
      if (!request.has_register_()) continue;
      last = request.register_();
      ++seen;
    }
    return seen >= count;
  });
  return last;
}

size_t FakeController::Count(const std::function<bool(const v1::ConnectRequest&)>& fits) const {
  size_t count = 0;
  for (const v1::ConnectRequest& request : received()) count += fits(request) ? 1 : 0;
  return count;
}

v1::StartRanks StartMessage(const std::string& job_id, uint64_t epoch,
                            const std::vector<std::string>& actions) {
  v1::StartRanks order;
  order.set_job_id(job_id);
  order.set_epoch(epoch);
  order.set_world(1);
  order.add_ranks();
  order.set_job_config(Job(actions));
  return order;
}

}  // namespace trainyard
