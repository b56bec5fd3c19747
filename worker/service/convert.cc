#include "worker/service/convert.h"

#include <variant>

#include "common/json.h"
#include "common/protobuf_numbers.h"
#include "common/resolved_job_format.h"
#include "common/text.h"

namespace trainyard {
namespace {

constexpr size_t kMaxMessageBytes = 8 << 10;
constexpr size_t kMaxReasonBytes = 1 << 10;

v1::RankState ToProto(RankState state) {
  switch (state) {
    case RankState::kStarting:
      return v1::RANK_STATE_STARTING;
    case RankState::kReady:
      return v1::RANK_STATE_READY;
    case RankState::kExited:
      return v1::RANK_STATE_EXITED;
  }
  return v1::RANK_STATE_UNSPECIFIED;
}

v1::ExitCause ToProto(ExitCause cause) {
  switch (cause) {
    case ExitCause::kCompleted:
      return v1::EXIT_CAUSE_COMPLETED;
    case ExitCause::kStopped:
      return v1::EXIT_CAUSE_STOPPED;
    case ExitCause::kBadInput:
      return v1::EXIT_CAUSE_BAD_INPUT;
    case ExitCause::kNotFinite:
      return v1::EXIT_CAUSE_NOT_FINITE;
    case ExitCause::kPeerLost:
      return v1::EXIT_CAUSE_PEER_LOST;
    case ExitCause::kDeviceError:
      return v1::EXIT_CAUSE_DEVICE_ERROR;
    case ExitCause::kSignal:
      return v1::EXIT_CAUSE_SIGNAL;
    case ExitCause::kHung:
      return v1::EXIT_CAUSE_HUNG;
    case ExitCause::kOther:
      return v1::EXIT_CAUSE_OTHER;
    case ExitCause::kStorage:
      return v1::EXIT_CAUSE_STORAGE;
    case ExitCause::kSuperseded:
      return v1::EXIT_CAUSE_SUPERSEDED;
  }
  return v1::EXIT_CAUSE_UNSPECIFIED;
}

// Years outside the range of nanoseconds become the nearest year inside, 1677 or 2262.
void SetTime(absl::Time time, google::protobuf::Timestamp& out) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t nanos = absl::ToUnixNanos(time);
  const int64_t part = (nanos % kSecond + kSecond) % kSecond;  // From 0, also before 1970.
  out.set_seconds((nanos - part) / kSecond);
  out.set_nanos(int32_t(part));
}

void Fill(const RankStatus& status, v1::ConnectRequest& request) {
  *request.mutable_rank_status() = ToProto(status);
}

void Fill(const channel::GpuReading& gpu, v1::StepRecord& record) {
  if (gpu.utilization) record.set_gpu_utilization_ratio(*gpu.utilization);
  if (gpu.power_watts) record.set_gpu_power_watts(*gpu.power_watts);
  if (gpu.sm_clock_hertz) record.set_gpu_sm_clock_hertz(*gpu.sm_clock_hertz);
  if (gpu.temperature_celsius) record.set_gpu_temperature_celsius(*gpu.temperature_celsius);
  for (const std::string& reason : gpu.throttle_reasons) {
    record.add_gpu_throttle_reasons(ValidUtf8(reason));
  }
}

void Fill(const StepReport& report, v1::ConnectRequest& request) {
  const channel::Step& step = report.step;
  v1::StepReport& out = *request.mutable_step();
  out.set_job_id(report.id.job_id);
  out.set_rank(report.id.rank);
  out.set_model_flops(step.model_flops);
  if (step.peak_flops) out.set_peak_flops(*step.peak_flops);
  v1::StepRecord& record = *out.mutable_record();
  record.set_step(step.step);
  record.set_epoch(step.epoch.value_or(report.id.epoch));
  if (step.epoch) out.set_read_by_epoch(report.id.epoch);
  ForEachNumber(step,
                [&](const StepNumber& row, const auto& n) { SetNumber(record, row.name, n); });
  record.set_tokens(step.tokens);
  record.set_seconds(step.seconds);
  v1::PhaseSeconds& phases = *record.mutable_phases();
  for (const auto& [name, phase] : kPhases) SetNumber(phases, name, step.phases.*phase);
  record.set_skipped(step.skipped);
  if (step.gpu) Fill(*step.gpu, record);
  SetTime(absl::UnixEpoch() + absl::Seconds(step.time), *record.mutable_finish_time());
  for (const channel::CollectiveUse& use : step.collectives) {
    v1::CollectiveUse& to = *out.add_collectives();
    to.set_op(ValidUtf8(use.op));
    to.set_group(ValidUtf8(use.group));
    to.set_calls(use.calls);
    to.set_bytes(use.bytes);
    to.set_seconds(use.seconds);
  }
}

void Fill(const CheckpointReport& report, v1::ConnectRequest& request) {
  v1::CheckpointReport& out = *request.mutable_checkpoint();
  out.set_job_id(report.id.job_id);
  out.set_duration_seconds(report.checkpoint.seconds);
  if (report.checkpoint.error) {
    out.set_error(std::string(CutUtf8(ValidUtf8(*report.checkpoint.error), kMaxReasonBytes)));
  }
  v1::Checkpoint& checkpoint = *out.mutable_checkpoint();
  checkpoint.set_step(report.checkpoint.step);
  checkpoint.set_epoch(report.id.epoch);
  checkpoint.set_path(ValidUtf8(report.checkpoint.path));
  checkpoint.set_size_bytes(report.checkpoint.size_bytes);
  for (const channel::CheckpointId& id : report.checkpoint.retained) {
    v1::CheckpointId& retained = *out.add_retained();
    retained.set_epoch(id.epoch);
    retained.set_step(id.step);
  }
  SetTime(report.time, *checkpoint.mutable_create_time());
}

void Fill(const LogReport& report, v1::ConnectRequest& request) {
  v1::LogReport& out = *request.mutable_log();
  for (const LogLine& line : report.lines) {
    out.set_job_id(line.id.job_id);
    v1::LogLine& to = *out.add_lines();
    SetTime(line.time, *to.mutable_time());
    to.set_epoch(line.id.epoch);
    to.set_rank(line.id.rank);
    to.set_text(ValidUtf8(line.text));
  }
}

void Fill(const RendezvousSet& message, v1::ConnectRequest& request) {
  v1::RendezvousSet& out = *request.mutable_rendezvous_set();
  out.set_job_id(message.id.job_id);
  out.set_epoch(message.id.epoch);
  out.set_key(ValidUtf8(message.set.key));
  out.set_value(message.set.value);
}

void Fill(const RendezvousGet& message, v1::ConnectRequest& request) {
  v1::RendezvousGet& out = *request.mutable_rendezvous_get();
  out.set_job_id(message.id.job_id);
  out.set_epoch(message.id.epoch);
  out.set_key(ValidUtf8(message.key));
}

void Fill(const Draining&, v1::ConnectRequest& request) { request.mutable_draining(); }

}  // namespace

v1::Device ToProto(const Device& device) {
  v1::Device out;
  out.set_index(device.index);
  out.set_kind(device.gpu ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
  out.set_model(ValidUtf8(device.model));
  out.set_memory_bytes(device.memory_bytes);
  out.set_threads(device.threads);
  for (const auto& [dtype, flops] : device.peak_flops) {
    v1::PeakRate& rate = *out.add_peak();
    rate.set_dtype(dtype);
    rate.set_flops(flops);
    rate.set_measured(!device.gpu);
  }
  if (device.gpu) {
    v1::Gpu& gpu = *out.mutable_gpu();
    gpu.set_index(device.gpu->index);
    gpu.set_uuid(ValidUtf8(device.gpu->uuid));
    gpu.set_driver_version(ValidUtf8(device.gpu->driver_version));
    gpu.set_compute_capability(device.gpu->compute_capability);
  }
  return out;
}

v1::RankStatus ToProto(const RankStatus& status) {
  v1::RankStatus out;
  out.set_job_id(status.id.job_id);
  out.set_epoch(status.id.epoch);
  out.set_rank(status.id.rank);
  out.set_device(status.device);
  out.set_state(ToProto(status.state));
  if (status.state == RankState::kReady) {
    out.set_resumed_step(status.ready.step);
    for (const std::string& reason : status.ready.refused) {
      out.add_refused(std::string(CutUtf8(ValidUtf8(reason), kMaxReasonBytes)));
    }
    for (const channel::LoadableCheckpoint& kept : status.ready.loadable) {
      v1::Checkpoint& checkpoint = *out.add_loadable();
      checkpoint.set_epoch(kept.epoch);
      checkpoint.set_step(kept.step);
      checkpoint.set_path(ValidUtf8(kept.path));
      checkpoint.set_size_bytes(kept.size_bytes);
    }
    for (const channel::AttemptStart& start : status.ready.earlier_starts) {
      v1::AttemptStart& earlier = *out.add_earlier_starts();
      earlier.set_epoch(start.epoch);
      earlier.set_step(start.step);
    }
  }
  if (status.state == RankState::kExited) {
    out.set_cause(ToProto(status.exit.cause));
    out.set_signal(status.exit.signal);
    out.set_exit_code(status.exit.exit_code);
    out.set_message(std::string(CutUtf8(ValidUtf8(status.exit.message), kMaxMessageBytes)));
  }
  return out;
}

v1::ConnectRequest ToProto(const Outgoing& outgoing) {
  v1::ConnectRequest request;
  std::visit([&](const auto& kind) { std::visit([&](const auto& m) { Fill(m, request); }, kind); },
             outgoing.message);
  request.set_sequence(outgoing.sequence);
  return request;
}

namespace {

// Whether the trainers of this release can read the text. A controller of the next release may send
// a newer format, together with the job as submitted.
bool IsReadable(const std::string& resolved_job) {
  const nlohmann::json job = ParseJson(resolved_job);
  return job.is_object() && job.value("format", nlohmann::json()) == kResolvedJobFormat;
}

}  // namespace

StartOrder FromProto(const v1::StartRanks& order) {
  StartOrder out;
  out.job_id = order.job_id();
  out.epoch = order.epoch();
  out.world = order.world();
  for (const v1::RankPlacement& placement : order.ranks()) {
    out.ranks.push_back({placement.rank(), placement.device()});
  }
  out.job_config = IsReadable(order.resolved_job()) ? order.resolved_job() : order.job_config();
  out.claimed = order.claimed();
  out.recorded_step = order.recorded_step();
  out.history_after = order.history_after();
  out.recorded_epoch = order.recorded_epoch();
  out.roots.assign(order.roots().begin(), order.roots().end());
  return out;
}

StopOrder FromProto(const v1::StopRanks& order) {
  // A mode that this worker does not know stops the ranks without loss.
  const bool kill = order.mode() == v1::STOP_MODE_KILL || order.mode() == v1::STOP_MODE_UNSPECIFIED;
  return {order.job_id(), order.epoch(), kill ? StopMode::kKill : StopMode::kCheckpoint};
}

RendezvousAnswer FromProto(const v1::RendezvousValue& value) {
  return {value.job_id(), value.epoch(), value.key(), value.value()};
}

}  // namespace trainyard
