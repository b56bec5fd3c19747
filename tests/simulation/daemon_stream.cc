// The daemon's stream to the controller: what worker/service/controller_stream.cc does.

#include <algorithm>
#include <utility>

#include "common/proto_fields.h"
#include "common/worker_fields.h"
#include "tests/simulation/machine.h"
#include "worker/service/convert.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kBeat = absl::Seconds(2);
constexpr absl::Duration kRegisterTimeout = absl::Seconds(10);
constexpr absl::Duration kLongestPause = absl::Seconds(4);
constexpr absl::Duration kDetach = absl::Minutes(10);

}  // namespace

void DaemonProcess::Dial() {
  ++connection_;
  if (machine_.way().cut()) return Redial();
  const auto receive = [this, connection = connection_,
                        &process = process_](std::optional<v1::ConnectResponse> response) {
    process.Do([this, connection, response = std::move(response)] {
      if (connection == connection_) Receive(response);
    });
  };
  stream_.down = std::make_shared<DownPipe>(world_.queue, machine_.way(), receive);
  stream_.up = world_.controller.Accept(machine_.way(), stream_.down);
  if (stream_.up == nullptr) return Redial();
  v1::ConnectRequest request;
  v1::Register& message = *request.mutable_register_();
  message.set_protocol_version(2);
  message.set_worker_id(machine_.id());
  message.set_instance_id(instance_);
  message.set_hostname("host-" + machine_.id());
  message.set_detach_seconds(uint32_t(absl::ToInt64Seconds(kDetach)));
  for (uint32_t i = 0; i < machine_.devices(); ++i) {
    *message.add_devices() =
        ToProto(Device{.index = i, .model = "cpu", .memory_bytes = 1, .threads = 1});
  }
  for (const auto& [id, rank] : ranks_) *message.add_running() = ToProto(StatusOf(id));
  stream_.up->Send(request);
  process_.After(kRegisterTimeout, [this, connection = connection_] {
    if (connection == connection_ && !registered_) EndStream();
  });
}

void DaemonProcess::Redial() {
  pause_ = std::min(2 * pause_, kLongestPause);
  process_.After(world_.queue.Between(pause_ / 2, pause_), [this] { Dial(); });
}

// As seen from here: the other end hears of it when the way is open.
void DaemonProcess::EndStream() {
  ++connection_;
  registered_ = false;
  stream_.down->Close();
  stream_.up->Send(std::nullopt);
  Redial();
}

void DaemonProcess::Receive(const std::optional<v1::ConnectResponse>& response) {
  if (!response) return EndStream();
  world_.queue.Hash(response->SerializeAsString());
  if (response->has_registered()) {
    Registered();
  } else if (response->has_start_ranks()) {
    StartRanks(FromProto(response->start_ranks()));
  } else if (response->has_stop_ranks()) {
    StopRanks(FromProto(response->stop_ranks()));
  } else if (response->has_rendezvous_value()) {
    Answer(ReadMessage<RendezvousValue>(response->rendezvous_value()));
  } else if (response->has_ack()) {
    Acknowledge(response->ack().sequence());
  }
  Flush();
}

void DaemonProcess::Registered() {
  world_.queue.Trace(machine_.id(), " is registered");
  registered_ = true;
  pause_ = absl::Milliseconds(100);
  outbox_.Rewind();
  for (const auto& [id, rank] : ranks_) {
    if (rank.phase != Phase::kRunning) continue;
    for (const channel::Set& set : machine_.folder(id).sets) {
      outbox_.Add(RendezvousSet{{id.job_id, id.epoch, set.key, set.value}});
    }
    for (const std::string& key : rank.gets) {
      outbox_.Add(RendezvousGet{{id.job_id, id.epoch, key}});
    }
  }
  Beat(connection_);
}

void DaemonProcess::Flush() {
  if (!registered_) return;
  while (const auto outgoing = outbox_.Next(absl::ZeroDuration())) {
    stream_.up->Send(ToProto(*outgoing));
    last_sent_ = world_.queue.now();
  }
}

void DaemonProcess::Beat(uint64_t connection) {
  if (connection != connection_) return;
  if (world_.queue.now() - last_sent_ >= kBeat) {
    v1::ConnectRequest request;
    request.mutable_heartbeat();
    stream_.up->Send(request);
    last_sent_ = world_.queue.now();
  }
  process_.After(last_sent_ + kBeat - world_.queue.now(), [this, connection] { Beat(connection); });
}

void DaemonProcess::LoseStream() {
  process_.Do([this] {
    if (registered_) EndStream();
  });
}

void DaemonProcess::Die(bool politely) {
  process_.Kill();
  if (stream_.down != nullptr) stream_.down->Close();
  if (stream_.up == nullptr) return;
  politely ? stream_.up->Send(std::nullopt) : stream_.up->Close();
}

}  // namespace trainyard::simulation
