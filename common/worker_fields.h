// Declares the fields of what ranks and workers say, each once. The socket's JSON
// (worker/channel/messages.cc) and the messages between a worker and the controller
// (worker/service/convert.cc, controller/service/convert_worker.cc) use these declarations, in both
// directions. common/json_fields.h and common/proto_fields.h explain them.

#pragma once

#include "common/rank_records.h"
#include "common/worker_messages.h"

namespace trainyard {

void VisitFields(auto& v, CollectiveUse& m) {
  v("op", m.op), v("group", m.group), v("calls", m.calls), v("bytes", m.bytes);
  v("seconds", m.seconds);
}
void VisitFields(auto& v, GpuReading& m) {
  for (const GpuNumber& row : kGpuNumbers) v(row.name, m.*row.value);
  v("throttle_reasons", m.throttle_reasons);
}
void VisitFields(auto& v, GeneratedText& m) { v("prompt", m.prompt), v("text", m.text); }
void VisitFields(auto& v, StepRecord& m) {
  VisitFields(v, static_cast<StepNumbers&>(m)), v.Group("phases", m.phases);
  v("step", m.step), v("tokens", m.tokens), v("seconds", m.seconds);
  v("peak_flops", m.peak_flops), v("skipped", m.skipped);
  v("model_flops", m.model_flops), v("memory_bytes", m.memory_bytes);
  v("memory_planned_bytes", m.memory_planned_bytes), v("time", m.time);
  v.Later("collectives", m.collectives), v.Seldom("gpu", m.gpu), v("epoch", m.epoch);
  v.Seldom("generated", m.generated);
}
// In v1::StepRecord, the GPU's numbers are fields of the step.
void VisitStepMessage(auto& v, StepRecord& m) {
  VisitFields(v, m);
  for (const GpuNumber& row : kGpuNumbers) {
    v(absl::StrCat("gpu_", row.shown).c_str(), m.gpu.*row.value);
  }
  v("gpu_throttle_reasons", m.gpu.throttle_reasons);
}
void VisitFields(auto& v, CheckpointId& m) { v.Pair("epoch", m.epoch, "step", m.step); }
void VisitFields(auto& v, BestCheckpoint& m) {
  v("epoch", m.epoch), v("step", m.step), v("validation_loss", m.validation_loss);
}
void VisitFields(auto& v, CheckpointRecord& m) {
  v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes), v("seconds", m.seconds);
  v("retained", m.retained), v("error", m.error), v("best", m.best);
}
void VisitFields(auto& v, LoadableCheckpoint& m) {
  v("epoch", m.epoch), v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes);
}
void VisitFields(auto& v, AttemptStart& m) { v("epoch", m.epoch), v("step", m.step); }
void VisitFields(auto& v, StartRecord& m) {
  v("step", m.step), v("refused", m.refused), v.Later("loadable", m.loadable);
  v.Later("earlier_starts", m.earlier_starts), v("best", m.best);
}
void VisitFields(auto& v, RankId& m) {
  v("job_id", m.job_id), v("epoch", m.epoch), v("rank", m.rank);
}
void VisitFields(auto& v, RankStatus& m) {
  VisitFields(v, static_cast<RankId&>(m)), v("device", m.device), v("state", m.state);
  v("cause", m.cause), v("signal", m.signal), v("exit_code", m.exit_code), v("message", m.message);
  if (m.resumed) VisitFields(v, *m.resumed), v("resumed_step", m.resumed->step);
}
void VisitFields(auto& v, CheckpointReport& m) {
  VisitFields(v, m.id), VisitFields(v, m.checkpoint);
  v("duration_seconds", m.checkpoint.seconds);
  v.Nested("checkpoint", [&](auto& nested) {
    VisitFields(nested, m.id), VisitFields(nested, m.checkpoint), nested("create_time", m.time);
  });
}
void VisitFields(auto& v, LogRecord& m) {
  v("time", m.time), v("epoch", m.epoch), v("rank", m.rank), v("text", m.text);
}
void VisitFields(auto& v, LogReport& m) { v("job_id", m.job_id), v("lines", m.lines); }
void VisitFields(auto& v, RendezvousValue& m) {
  v("job_id", m.job_id), v("epoch", m.epoch), v("key", m.key), v("value", m.value);
}
void VisitFields(auto& v, RankPlacement& m) {
  v("rank", m.rank), v("worker_id", m.worker_id), v("device", m.device);
}
void VisitFields(auto& v, StartOrder& m) {
  VisitFields(v, static_cast<AttemptFacts&>(m)), v("ranks", m.ranks);
  v("job_config", m.job_config);
}
void VisitFields(auto& v, StopOrder& m) {
  v("job_id", m.job_id), v("epoch", m.epoch), v("mode", m.mode);
}
void VisitFields(auto& v, PeakRate& m) {
  v("dtype", m.dtype), v("flops", m.flops), v("measured", m.measured);
}
void VisitFields(auto& v, Gpu& m) {
  v("index", m.index), v("uuid", m.uuid), v("driver_version", m.driver_version);
  v("compute_capability", m.compute_capability);
}
void VisitFields(auto& v, Device& m) {
  v("index", m.index), v("model", m.model), v("memory_bytes", m.memory_bytes);
  v("threads", m.threads), v("peak", m.peaks), v("gpu", m.gpu);
}

}  // namespace trainyard
