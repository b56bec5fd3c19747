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

template <typename V>
static void VisitFields(V& v, PeakRate& peak) {
  v("dtype", peak.dtype), v("flops", peak.flops), v("measured", peak.measured);
}

template <typename V>
static void VisitFields(V& v, Gpu& gpu) {
  v("index", gpu.index), v("uuid", gpu.uuid), v("driver_version", gpu.driver_version);
  v("compute_capability", gpu.compute_capability);
}

template <typename V>
static void VisitFields(V& v, Device& device) {
  int kind = device.kind == DeviceKind::kCuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU;
  v("kind", kind);
  if constexpr (V::kReads) {
    device.kind = kind == v1::DEVICE_KIND_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
  }
  v("index", device.index), v("model", device.model), v("memory_bytes", device.memory_bytes);
  v("threads", device.threads), v("peak", device.peaks), v("gpu", device.gpu);
}

template <typename V>
static void VisitFields(V& v, Registration& r) {
  v("worker_id", r.worker_id), v("instance_id", r.instance_id), v("hostname", r.hostname);
  v("version", r.version), v("roots", r.roots), v("metrics_url", r.metrics_url);
  if constexpr (!V::kReads) v("devices", r.devices);  // Some of those that are read are left out.
}

template <typename V>
static void VisitFields(V& v, Worker& worker) {
  v("state", worker.state), v("register_time", worker.register_time);
  v("last_heartbeat_time", worker.last_heartbeat_time);
}

template <typename V>
static void VisitFields(V& v, Resumed& resumed) {
  v("resumed_step", resumed.step), v("refused", resumed.refused);
  v("earlier_starts", resumed.earlier), v("loadable", resumed.loadable);
}

template <typename V>
static void VisitFields(V& v, RankStatus& status) {
  v("job_id", status.job_id), v("epoch", status.epoch), v("rank", status.rank);
  v("device", status.device), v("state", status.state), v("cause", status.cause);
  v("signal", status.signal), v("exit_code", status.exit_code), v("message", status.message);
}

template <typename V>
static void VisitFields(V& v, CollectiveUse& use) {
  v("op", use.op), v("group", use.group), v("bytes", use.bytes), v("seconds", use.seconds);
}

template <typename V>
static void VisitFields(V& v, StepReport& report) {
  v("job_id", report.job_id), v("rank", report.rank), v("record", report.record);
  v("model_flops", report.record.model_flops), v("peak_flops", report.peak_flops);
  v("collectives", report.collectives), v("read_by_epoch", report.read_by_epoch);
}

template <typename V>
static void VisitFields(V& v, CheckpointId& id) {
  v("epoch", id.epoch), v("step", id.step);
}

template <typename V>
static void VisitFields(V& v, CheckpointReport& report) {
  v("job_id", report.job_id), v("checkpoint", report.checkpoint), v("error", report.error);
  v("retained", report.retained);
}

template <typename V>
static void VisitFields(V& v, RendezvousValue& value) {
  v("job_id", value.job_id), v("epoch", value.epoch), v("key", value.key), v("value", value.value);
}

namespace {

constexpr size_t kMostShown = 64;  // Bytes of a version that is not ours.
constexpr uint32_t kMaxDetachSeconds = 600;

// A rank on a device of another kind would be told that the device is a CPU.
bool IsKnown(const v1::Device& device) {
  return device.kind() == v1::DEVICE_KIND_CPU || device.kind() == v1::DEVICE_KIND_CUDA;
}

v1::StartRanks ToProto(const StartOrder& order) {
  const Job& job = *order.job;
  v1::StartRanks out;
  out.set_job_id(job.id);
  out.set_epoch(job.epoch);
  out.set_world(uint32_t(job.ranks.size()));
  for (uint32_t i = 0; i < job.ranks.size(); ++i) {
    const Rank& rank = job.ranks[i];
    if (rank.worker_id != order.worker_id || IsGone(rank.phase)) continue;
    *out.add_ranks() = ToProto(rank, i);
  }
  if (IsResolvedJob(job.spec->config)) {
    v1::JobSpec spec;
    spec.ParseFromString(job.spec->bytes);
    out.set_job_config(SpecJson(spec).value_or(""));
    out.set_resolved_job(job.spec->config);
  } else {
    out.set_job_config(job.spec->config);
  }
  out.set_history_after(order.history_after);
  out.mutable_roots()->Add(order.roots.begin(), order.roots.end());
  out.set_claimed(job.claimed);
  out.set_recorded_step(job.furthest_checkpoint);
  out.set_recorded_epoch(job.resumes.empty() ? 0 : job.resumes.back().epoch);
  return out;
}

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
  Registration out;
  ReadMessage(message, out);
  std::set<uint32_t> indices;
  for (const v1::Device& device : message.devices()) {
    if (!indices.insert(device.index()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("Register.devices: two devices have index ", device.index()));
    }
    if (IsKnown(device)) ReadMessage(device, out.devices.emplace_back());
  }
  for (const v1::RankStatus& status : message.running()) out.running.push_back(FromProto(status));
  out.detach = absl::Seconds(std::min(message.detach_seconds(), kMaxDetachSeconds));
  return out;
}

RankStatus FromProto(const v1::RankStatus& status) {
  RankStatus out;
  ReadMessage(status, out);
  // Whatever else a newer worker says of a rank, its process is there: only EXITED says the
  // contrary.
  if (status.state() != v1::RANK_STATE_READY && status.state() != v1::RANK_STATE_EXITED) {
    out.state = RankState::kStarting;
  }
  if (status.cause() < 1 || !v1::ExitCause_IsValid(status.cause())) out.cause = ExitCause::kOther;
  if (out.state != RankState::kExited) out.cause = ExitCause::kNone;
  if (out.state != RankState::kReady || out.rank != 0) return out;
  ReadMessage(status, out.resumed.emplace());
  std::vector<Resume>& earlier = out.resumed->earlier;
  const auto not_earlier = [&](const Resume& start) { return start.epoch >= out.epoch; };
  earlier.erase(std::find_if(earlier.begin(), earlier.end(), not_earlier), earlier.end());
  return out;
}

StepReport FromProto(const v1::StepReport& report) {
  StepReport out;
  ReadMessage(report, out);
  return out;
}

CheckpointReport FromProto(const v1::CheckpointReport& report) {
  CheckpointReport out;
  ReadMessage(report, out);
  out.duration = absl::Seconds(report.duration_seconds());
  return out;
}

v1::ConnectResponse ToProto(const Order& order) {
  v1::ConnectResponse out;
  if (const auto* registered = std::get_if<Registered>(&order)) {
    out.mutable_registered()->set_heartbeat_milliseconds(
        uint32_t(absl::ToInt64Milliseconds(registered->heartbeat)));
    out.mutable_registered()->set_lease_milliseconds(
        uint32_t(absl::ToInt64Milliseconds(registered->lease)));
  } else if (const auto* start = std::get_if<StartOrder>(&order)) {
    *out.mutable_start_ranks() = ToProto(*start);
  } else if (const auto* stop = std::get_if<StopOrder>(&order)) {
    out.mutable_stop_ranks()->set_job_id(stop->job_id);
    out.mutable_stop_ranks()->set_epoch(stop->epoch);
    out.mutable_stop_ranks()->set_mode(v1::StopMode(stop->mode));
  } else if (const auto* value = std::get_if<RendezvousValue>(&order)) {
    WriteMessage(*value, *out.mutable_rendezvous_value());
  }
  return out;
}

v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders) {
  v1::Worker out;
  WriteMessage(worker, out);
  WriteMessage(worker.registration, out);
  out.set_id(worker.registration.worker_id);
  for (v1::Device& device : *out.mutable_devices()) {
    const auto holder = holders.find({out.id(), device.index()});
    if (holder == holders.end()) continue;
    device.set_job_id(holder->second.job_id);
    device.set_rank(holder->second.rank);
  }
  return out;
}

}  // namespace trainyard::controller
