#include "controller/service/convert_worker.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "controller/access/principal.h"
#include "controller/jobs/job_id.h"
#include "controller/jobs/job_state.h"
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

// All but the kind, whose numbers on the wire are others.
template <typename V>
static void VisitFields(V& v, Device& device) {
  v("index", device.index), v("model", device.model), v("memory_bytes", device.memory_bytes);
  v("threads", device.threads), v("peak", device.peaks), v("gpu", device.gpu);
}

namespace {

constexpr size_t kMaxDevices = 1024;
constexpr size_t kMaxRunning = 4 * kMaxDevices;  // Unreported ends of ranks are among them.
constexpr size_t kMaxRoots = 64;
constexpr size_t kMaxPeaks = 16;

constexpr size_t kMaxLabelBytes = 64;
constexpr size_t kMaxTextBytes = 256;
constexpr size_t kMaxPathBytes = 4096;  // Linux has no longer ones.
constexpr size_t kMaxUrlBytes = 1024;
constexpr size_t kMaxEarlierStarts = 64;

// For people; cut where longer.
constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxRefusedBytes = 512;
constexpr int kMaxRefused = 32;

constexpr uint32_t kMaxDetachSeconds = 600;

// A rank on a device of another kind would be told that the device is a CPU.
bool IsKnown(v1::DeviceKind kind) {
  return kind == v1::DEVICE_KIND_CPU || kind == v1::DEVICE_KIND_CUDA;
}

absl::Status TooLong(absl::string_view what, size_t found, size_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", found, " bytes; wanted at most ", most));
}

absl::Status TooMany(absl::string_view what, int found, size_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat("register: ", found, " ", what, "; at most ", most));
}

struct Bounded {
  const char* what;
  const std::string& text;
  size_t most = kMaxTextBytes;
};

absl::Status CheckLengths(std::initializer_list<Bounded> texts) {
  for (const Bounded& one : texts) {
    if (one.text.size() > one.most) return TooLong(one.what, one.text.size(), one.most);
  }
  return absl::OkStatus();
}

absl::Status CheckJobId(absl::string_view id) {
  if (JobNumber(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("wanted the id of a job, found ", id.size(),
                                                 " bytes: '",
                                                 VisibleUtf8(CutUtf8(id, kMaxLabelBytes)), "'"));
}

absl::Status CheckDevice(const v1::Device& device) {
  if (size_t(device.peak_size()) > kMaxPeaks) {
    return TooMany("peak rates of a device", device.peak_size(), kMaxPeaks);
  }
  for (const v1::PeakRate& peak : device.peak()) {
    RETURN_IF_ERROR(
        CheckLengths({{"register: a peak rate's dtype", peak.dtype(), kMaxLabelBytes}}));
  }
  const v1::Gpu& gpu = device.gpu();
  return CheckLengths({{"register: a device's model", device.model()},
                       {"register: a GPU's uuid", gpu.uuid()},
                       {"register: a GPU's driver_version", gpu.driver_version()},
                       {"register: a GPU's compute_capability", gpu.compute_capability()}});
}

// A worker's word is kept, and listed to whoever asks: it must have bounds.
absl::Status CheckSizes(const v1::Register& message) {
  if (!IsName(message.worker_id())) {
    return absl::InvalidArgumentError(
        absl::StrCat("register: worker_id: ", WantedName(message.worker_id())));
  }
  RETURN_IF_ERROR(CheckLengths({{"register: instance_id", message.instance_id()},
                                {"register: hostname", message.hostname()},
                                {"register: version", message.version()},
                                {"register: metrics_url", message.metrics_url(), kMaxUrlBytes}}));
  if (size_t(message.devices_size()) > kMaxDevices) {
    return TooMany("devices", message.devices_size(), kMaxDevices);
  }
  if (size_t(message.roots_size()) > kMaxRoots) {
    return TooMany("roots", message.roots_size(), kMaxRoots);
  }
  if (size_t(message.running_size()) > kMaxRunning) {
    return TooMany("running ranks", message.running_size(), kMaxRunning);
  }
  for (const v1::Device& device : message.devices()) RETURN_IF_ERROR(CheckDevice(device));
  for (const std::string& root : message.roots()) {
    RETURN_IF_ERROR(CheckLengths({{"register: a root", root, kMaxPathBytes}}));
  }
  for (const v1::RankStatus& status : message.running()) {
    RETURN_IF_ERROR(CheckJobId(status.job_id()));
  }
  return absl::OkStatus();
}

Device FromProto(const v1::Device& device) {
  Device out;
  ReadMessage(device, out);
  out.kind = device.kind() == v1::DEVICE_KIND_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
  return out;
}

v1::StartRanks ToProto(const StartOrder& order) {
  const Job& job = *order.job;
  v1::StartRanks out;
  out.set_job_id(job.id);
  out.set_epoch(job.epoch);
  out.set_world(uint32_t(job.ranks.size()));
  for (uint32_t i = 0; i < job.ranks.size(); ++i) {
    if (job.ranks[i].worker_id != order.worker_id || IsGone(job.ranks[i].phase)) continue;
    auto* rank = out.add_ranks();
    rank->set_rank(i);
    rank->set_worker_id(order.worker_id);
    rank->set_device(job.ranks[i].device);
  }
  if (IsResolvedJob(job.spec->config)) {
    v1::JobSpec spec;
    spec.ParseFromString(job.spec->bytes);
    out.set_job_config(SpecJson(spec).value_or(""));
    out.set_resolved_job(job.spec->config);
  } else {
    out.set_job_config(job.spec->config);
  }
  out.set_claimed(job.claimed);
  out.set_recorded_step(job.furthest_checkpoint);
  out.set_history_after(order.history_after);
  out.set_recorded_epoch(job.resumes.empty() ? 0 : job.resumes.back().epoch);
  for (const std::string& root : order.roots) out.add_roots(root);
  return out;
}

}  // namespace

absl::StatusOr<Registration> FromProto(const v1::Register& message) {
  if (message.protocol_version() != kWorkerProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker, Trainyard ", CutUtf8(ValidUtf8(message.version()), kMaxLabelBytes),
        ", speaks version ", message.protocol_version(),
        " of the worker stream, and this controller, Trainyard ", Version(), ", speaks version ",
        kWorkerProtocolVersion,
        ": install one release on both; docs/upgrade.md says in which order"));
  }
  RETURN_IF_ERROR(CheckSizes(message));
  Registration out;
  out.worker_id = message.worker_id();
  out.instance_id = message.instance_id();
  out.hostname = message.hostname();
  out.version = message.version();
  std::set<uint32_t> indices;
  for (const v1::Device& device : message.devices()) {
    if (!indices.insert(device.index()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("register: two devices have index ", device.index()));
    }
    if (IsKnown(device.kind())) out.devices.push_back(FromProto(device));
  }
  out.roots.assign(message.roots().begin(), message.roots().end());
  for (const v1::RankStatus& status : message.running()) out.running.push_back(FromProto(status));
  out.metrics_url = message.metrics_url();
  out.detach = absl::Seconds(std::min(message.detach_seconds(), kMaxDetachSeconds));
  return out;
}

absl::Status CheckReport(const v1::ConnectRequest& message) {
  switch (message.message_case()) {
    case v1::ConnectRequest::kRankStatus:
      for (const v1::Checkpoint& checkpoint : message.rank_status().loadable()) {
        RETURN_IF_ERROR(CheckLengths({{"a checkpoint's path", checkpoint.path(), kMaxPathBytes}}));
      }
      return CheckJobId(message.rank_status().job_id());
    case v1::ConnectRequest::kStep:
      return CheckJobId(message.step().job_id());
    case v1::ConnectRequest::kCheckpoint:
      RETURN_IF_ERROR(CheckLengths(
          {{"a checkpoint's path", message.checkpoint().checkpoint().path(), kMaxPathBytes}}));
      return CheckJobId(message.checkpoint().job_id());
    case v1::ConnectRequest::kLog:
      return CheckJobId(message.log().job_id());
    case v1::ConnectRequest::kRendezvousSet:
      return CheckJobId(message.rendezvous_set().job_id());
    case v1::ConnectRequest::kRendezvousGet:
      return CheckJobId(message.rendezvous_get().job_id());
    default:
      return absl::OkStatus();  // Names no job.
  }
}

// Whatever else a newer worker says of a rank, its process is there: only EXITED says the contrary.
RankState FromProto(v1::RankState state) {
  if (state == v1::RANK_STATE_READY) return RankState::kReady;
  if (state == v1::RANK_STATE_EXITED) return RankState::kExited;
  return RankState::kStarting;
}

RankStatus FromProto(const v1::RankStatus& status) {
  RankStatus out;
  out.job_id = status.job_id();
  out.epoch = status.epoch();
  out.rank = status.rank();
  out.device = status.device();
  out.state = FromProto(status.state());
  const int cause = int(status.cause());
  out.cause = out.state != RankState::kExited                    ? ExitCause::kNone
              : cause < 1 || cause > int(ExitCause::kSuperseded) ? ExitCause::kOther
                                                                 : ExitCause(cause);
  out.signal = status.signal();
  out.exit_code = status.exit_code();
  out.message = std::string(CutUtf8(status.message(), kMaxMessageBytes));
  if (out.state != RankState::kReady || out.rank != 0) return out;
  Resumed& resumed = out.resumed.emplace();
  resumed.step = status.resumed_step();
  for (int i = 0; i < std::min(status.refused_size(), kMaxRefused); ++i) {
    resumed.refused.emplace_back(CutUtf8(status.refused(i), kMaxRefusedBytes));
  }
  for (const v1::AttemptStart& start : status.earlier_starts()) {
    if (start.epoch() >= status.epoch() || resumed.earlier.size() == kMaxEarlierStarts) break;
    ReadMessage(start, resumed.earlier.emplace_back());
  }
  for (const v1::Checkpoint& checkpoint : status.loadable()) {
    if (resumed.loadable.size() == kMaxCheckpoints) break;
    ReadMessage(checkpoint, resumed.loadable.emplace_back());
  }
  return out;
}

StepReport FromProto(const v1::StepReport& report) {
  StepReport out;
  out.job_id = report.job_id();
  out.rank = report.rank();
  out.record = FromProto(report.record());
  out.read_by_epoch = report.read_by_epoch();
  const double flops = report.model_flops();  // Ends in a counter, which only grows.
  out.record.model_flops = std::isfinite(flops) && flops > 0 ? flops : 0;
  const double peak = report.peak_flops();
  if (std::isfinite(peak) && peak > 0) out.peak_flops = peak;
  for (const v1::CollectiveUse& use : report.collectives()) {
    if (use.op().size() > kMaxLabelBytes || use.group().size() > kMaxLabelBytes) continue;
    const double seconds = use.seconds();
    out.collectives.push_back({use.op(), use.group(), double(use.bytes()),
                               std::isfinite(seconds) && seconds > 0 ? seconds : 0});
  }
  return out;
}

CheckpointReport FromProto(const v1::CheckpointReport& report) {
  CheckpointReport out{.job_id = report.job_id(),
                       .checkpoint = {},
                       .duration = absl::Seconds(report.duration_seconds()),
                       .retained = {},
                       .error = std::string(CutUtf8(report.error(), kMaxMessageBytes))};
  ReadMessage(report.checkpoint(), out.checkpoint);
  for (const v1::CheckpointId& id : report.retained()) {
    out.retained.push_back({id.epoch(), id.step()});
  }
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
    out.mutable_rendezvous_value()->set_job_id(value->job_id);
    out.mutable_rendezvous_value()->set_epoch(value->epoch);
    out.mutable_rendezvous_value()->set_key(value->key);
    out.mutable_rendezvous_value()->set_value(value->value);
  }
  return out;
}

v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders) {
  v1::Worker out;
  const Registration& r = worker.registration;
  out.set_id(r.worker_id);
  out.set_hostname(r.hostname);
  out.set_version(r.version);
  out.set_state(v1::WorkerState(worker.state));
  for (const Device& device : r.devices) {
    auto* d = out.add_devices();
    WriteMessage(device, *d);
    d->set_kind(device.kind == DeviceKind::kCuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
    if (const auto holder = holders.find({r.worker_id, device.index}); holder != holders.end()) {
      d->set_job_id(holder->second.job_id);
      d->set_rank(holder->second.rank);
    }
  }
  *out.mutable_register_time() = ToTimestamp(worker.register_time);
  *out.mutable_last_heartbeat_time() = ToTimestamp(worker.last_heartbeat_time);
  out.set_metrics_url(r.metrics_url);
  return out;
}

}  // namespace trainyard::controller
