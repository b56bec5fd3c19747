#include "worker/service/convert.h"

#include <variant>

#include "common/json.h"
#include "common/proto_fields.h"
#include "common/resolved_job_format.h"
#include "common/text.h"
#include "worker/channel/message_fields.h"

namespace trainyard {

template <typename V>
static void VisitFields(V& v, RankId& id) {
  v("job_id", id.job_id), v("epoch", id.epoch), v("rank", id.rank);
}

namespace {

constexpr size_t kMaxMessageBytes = 8 << 10;
constexpr size_t kMaxReasonBytes = 1 << 10;

void Cut(std::string& text, size_t most) { text.resize(CutUtf8(text, most).size()); }

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
  WriteMessage(report.id, out);
  WriteMessage(step, out);
  if (step.epoch) out.set_read_by_epoch(report.id.epoch);
  v1::StepRecord& record = *out.mutable_record();
  record.set_epoch(report.id.epoch);
  WriteMessage(step, record);  // With its own epoch, where it has one.
  WriteMessage(step.phases, *record.mutable_phases());
  if (step.gpu) Fill(*step.gpu, record);
  *record.mutable_finish_time() = ToTimestamp(absl::UnixEpoch() + absl::Seconds(step.time));
}

void Fill(const CheckpointReport& report, v1::ConnectRequest& request) {
  v1::CheckpointReport& out = *request.mutable_checkpoint();
  out.set_job_id(report.id.job_id);
  out.set_duration_seconds(report.checkpoint.seconds);
  WriteMessage(report.checkpoint, out);
  Cut(*out.mutable_error(), kMaxReasonBytes);
  v1::Checkpoint& checkpoint = *out.mutable_checkpoint();
  checkpoint.set_epoch(report.id.epoch);
  WriteMessage(report.checkpoint, checkpoint);
  *checkpoint.mutable_create_time() = ToTimestamp(report.time);
}

void Fill(const LogReport& report, v1::ConnectRequest& request) {
  v1::LogReport& out = *request.mutable_log();
  for (const LogLine& line : report.lines) {
    out.set_job_id(line.id.job_id);
    v1::LogLine& to = *out.add_lines();
    *to.mutable_time() = ToTimestamp(line.time);
    WriteMessage(line.id, to);
    to.set_text(ValidUtf8(line.text));
  }
}

void Fill(const RendezvousSet& message, v1::ConnectRequest& request) {
  WriteMessage(message.id, *request.mutable_rendezvous_set());
  WriteMessage(message.set, *request.mutable_rendezvous_set());
}

void Fill(const RendezvousGet& message, v1::ConnectRequest& request) {
  WriteMessage(message.id, *request.mutable_rendezvous_get());
  request.mutable_rendezvous_get()->set_key(ValidUtf8(message.key));
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
  WriteMessage(status.id, out);
  out.set_device(status.device);
  out.set_state(v1::RankState(status.state));
  if (status.state == RankState::kReady) {
    out.set_resumed_step(status.ready.step);
    WriteMessage(status.ready, out);
    for (std::string& reason : *out.mutable_refused()) Cut(reason, kMaxReasonBytes);
  }
  if (status.state == RankState::kExited) {
    out.set_cause(v1::ExitCause(status.exit.cause));
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
  if (!job.is_object()) return false;
  const nlohmann::json format = job.value("format", nlohmann::json());
  return format.is_number_integer() && format >= kOldestResolvedJobFormat &&
         format <= kResolvedJobFormat;
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
