#include "controller/service/convert_worker.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/proto_fields.h"
#include "common/text.h"
#include "controller/jobs/job_fields.h"
#include "controller/service/convert_job.h"
#include "train/config/resolved_job.h"

namespace trainyard::controller {

static void VisitFields(auto& v, Registration& r) {
  v("worker_id", r.worker_id), v("instance_id", r.instance_id), v("hostname", r.hostname);
  v("version", r.version), v("roots", r.roots), v("metrics_url", r.metrics_url);
}

static void VisitFields(auto& v, Worker& worker) {
  VisitFields(v, worker.registration);
  v("id", worker.registration.worker_id), v("state", worker.state);
  v("register_time", worker.register_time), v("last_heartbeat_time", worker.last_heartbeat_time);
}

static void VisitFields(auto& v, StepReport& report) {
  v("job_id", report.job_id), v("rank", report.rank), v("record", report.record);
  v("model_flops", report.record.model_flops), v("peak_flops", report.record.peak_flops);
  v("collectives", report.record.collectives), v("read_by_epoch", report.read_by_epoch);
}

static void VisitFields(auto& v, Registered& registered) {
  v("heartbeat_milliseconds", absl::ToInt64Milliseconds(registered.heartbeat));
  v("lease_milliseconds", absl::ToInt64Milliseconds(registered.lease));
}

namespace {

constexpr size_t kMostShown = 64;  // Bytes of a version that is not ours.
constexpr uint32_t kMaxDetachSeconds = 600;

}  // namespace

absl::StatusOr<Registration> FromProto(const v1::Register& message) {
  if (message.protocol_version() != kWorkerProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker, Trainyard ", CutUtf8(ValidUtf8(message.version()), kMostShown),
                     ", speaks version ", message.protocol_version(),
                     " of the worker stream, and this controller, Trainyard ", Version(),
                     ", speaks version ", kWorkerProtocolVersion,
                     ": install one release on both; docs/upgrade.md says in which order"));
  }
  auto out = ReadMessage<Registration>(message);
  std::set<uint32_t> indices;
  for (const v1::Device& device : message.devices()) {
    if (!indices.insert(device.index()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("Register.devices: two devices have index ", device.index()));
    }
    // A rank on a device of another kind would be told that the device is a CPU.
    const bool cuda = device.kind() == v1::DEVICE_KIND_CUDA;
    if (!cuda && device.kind() != v1::DEVICE_KIND_CPU) continue;
    Device& known = out.devices.emplace_back();
    ReadMessage(device, known);
    if (cuda) known.kind = DeviceKind::kCuda;
  }
  for (const v1::RankStatus& status : message.running()) out.running.push_back(FromProto(status));
  out.detach = absl::Seconds(std::min(message.detach_seconds(), kMaxDetachSeconds));
  return out;
}

RankStatus FromProto(const v1::RankStatus& message) {
  RankStatus status;
  // Rank 0 alone knows from what the attempt resumed.
  if (message.state() == v1::RANK_STATE_READY && message.rank() == 0) status.resumed.emplace();
  ReadMessage(message, status);
  // Whatever else a newer worker says of a rank, its process is there: only EXITED says the
  // contrary.
  if (message.state() != v1::RANK_STATE_READY && message.state() != v1::RANK_STATE_EXITED) {
    status.state = RankState::kStarting;
  }
  if (message.cause() < 1 || !v1::ExitCause_IsValid(message.cause())) {
    status.cause = ExitCause::kOther;
  }
  if (status.state != RankState::kExited) status.cause = ExitCause::kNone;
  if (!status.resumed) return status;
  std::vector<AttemptStart>& earlier = status.resumed->earlier_starts;
  const auto not_earlier = [&](const AttemptStart& start) { return start.epoch >= status.epoch; };
  earlier.erase(std::find_if(earlier.begin(), earlier.end(), not_earlier), earlier.end());
  return status;
}

StepReport FromProto(const v1::StepReport& report) { return ReadMessage<StepReport>(report); }

v1::ConnectResponse ToProto(const Order& order) {
  v1::ConnectResponse out;
  WriteOneOf(order, {"registered", "start_ranks", "stop_ranks", "rendezvous_value"}, out);
  const auto* const start = std::get_if<StartOrder>(&order);
  if (start == nullptr || !IsResolvedJob(start->job_config)) return out;
  v1::JobSpec spec;
  spec.ParseFromString(start->submitted);
  out.mutable_start_ranks()->set_job_config(SpecJson(spec).value_or(""));
  out.mutable_start_ranks()->set_resolved_job(start->job_config);
  return out;
}

v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders) {
  v1::Worker out;
  WriteMessage(worker, out);
  for (const Device& device : worker.registration.devices) {
    v1::Device& told = *out.add_devices();
    WriteMessage(device, told);
    told.set_kind(device.kind == DeviceKind::kCuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
    const auto holder = holders.find({out.id(), device.index});
    if (holder == holders.end()) continue;
    told.set_job_id(holder->second.job_id);
    told.set_rank(holder->second.rank);
  }
  return out;
}

}  // namespace trainyard::controller
