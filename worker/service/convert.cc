#include "worker/service/convert.h"

#include <variant>

#include "common/json.h"
#include "common/proto_fields.h"
#include "common/resolved_job_format.h"
#include "common/text.h"
#include "common/worker_fields.h"

namespace trainyard {

static void VisitFields(auto& v, StepReport& report) {
  VisitFields(v, report.id), VisitFields(v, report.step);
  v("read_by_epoch", report.step.epoch ? report.id.epoch : 0);
  v.Nested("record", [&](auto& record) {
    VisitFields(record, report.id), VisitStepMessage(record, report.step);
    record("finish_time", absl::UnixEpoch() + absl::Seconds(report.step.time));
  });
}

static void VisitFields(auto&, Draining&) {}

namespace {

constexpr size_t kMaxStatusBytes = 8 << 10;
constexpr size_t kMaxReasonBytes = 1 << 10;

void Cut(std::string& text, size_t most) { text.resize(CutUtf8(text, most).size()); }

void CutWords(v1::RankStatus& status) {
  Cut(*status.mutable_message(), kMaxStatusBytes);
  for (std::string& reason : *status.mutable_refused()) Cut(reason, kMaxReasonBytes);
}

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

v1::Device ToProto(const Device& device) {
  v1::Device out;
  WriteMessage(device, out);
  out.set_kind(device.gpu ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
  return out;
}

v1::RankStatus ToProto(const RankStatus& status) {
  v1::RankStatus out;
  WriteMessage(status, out);
  CutWords(out);
  return out;
}

v1::ConnectRequest ToProto(const Outgoing& outgoing) {
  v1::ConnectRequest request;
  request.set_sequence(outgoing.sequence);
  if (const auto* const report = std::get_if<Report>(&outgoing.message)) {
    WriteOneOf(*report, {"rank_status", "step", "checkpoint"}, request);
  } else {
    WriteOneOf(std::get<Notice>(outgoing.message),
               {"log", "rendezvous_set", "rendezvous_get", "draining"}, request);
  }
  if (request.has_rank_status()) CutWords(*request.mutable_rank_status());
  if (request.has_checkpoint())
    Cut(*request.mutable_checkpoint()->mutable_error(), kMaxReasonBytes);
  return request;
}

StartOrder FromProto(const v1::StartRanks& message) {
  auto order = ReadMessage<StartOrder>(message);
  if (IsReadable(message.resolved_job())) order.job_config = message.resolved_job();
  return order;
}

StopOrder FromProto(const v1::StopRanks& order) {
  // A mode that this worker does not know stops the ranks without loss.
  const bool kill = order.mode() == v1::STOP_MODE_KILL || order.mode() == v1::STOP_MODE_UNSPECIFIED;
  return {order.job_id(), order.epoch(), kill ? StopMode::kKill : StopMode::kCheckpoint};
}

}  // namespace trainyard
