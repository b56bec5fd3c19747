// Declares the fields of each message once. The socket's JSON uses the declarations in both
// directions (messages.cc). The daemon's messages to the controller use them for the fields that
// have the same name there (worker/service/convert.cc).

#pragma once

#include "worker/channel/messages.h"

namespace trainyard::channel {

template <typename V>
void VisitFields(V& v, CollectiveUse& m) {
  v("op", m.op), v("group", m.group), v("calls", m.calls), v("bytes", m.bytes);
  v("seconds", m.seconds);
}
template <typename V>
void VisitFields(V& v, GpuReading& m) {
  v("utilization", m.utilization), v("memory_used_bytes", m.memory_used_bytes);
  v("power_watts", m.power_watts), v("sm_clock_hertz", m.sm_clock_hertz);
  v("temperature_celsius", m.temperature_celsius), v("throttle_reasons", m.throttle_reasons);
}
template <typename V>
void VisitFields(V& v, Hello& m) {
  int64_t version = kVersion;
  v("version", version);
  v("job_id", m.job_id), v("epoch", m.epoch), v("rank", m.rank), v("pid", m.pid);
}
template <typename V>
void VisitFields(V& v, Step& m) {
  VisitFields(v, static_cast<StepNumbers&>(m)), VisitFields(v, m.phases);
  v("step", m.step), v("tokens", m.tokens), v("seconds", m.seconds);
  v("peak_flops", m.peak_flops), v("skipped", m.skipped);
  v("model_flops", m.model_flops), v("memory_bytes", m.memory_bytes);
  v("memory_planned_bytes", m.memory_planned_bytes), v("time", m.time);
  v.Later("collectives", m.collectives), v("gpu", m.gpu), v("epoch", m.epoch);
}
template <typename V>
void VisitFields(V& v, CheckpointId& m) {
  v.Pair("epoch", m.epoch, "step", m.step);
}
template <typename V>
void VisitFields(V& v, Checkpoint& m) {
  v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes), v("seconds", m.seconds);
  v("retained", m.retained), v("error", m.error);
}
template <typename V>
void VisitFields(V& v, Set& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
void VisitFields(V& v, Get& m) {
  v("key", m.key);
}
template <typename V>
void VisitFields(V& v, Value& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
void VisitFields(V& v, Stop&) {
  std::string mode = "checkpoint";
  v("mode", mode);
}
template <typename V>
void VisitFields(V& v, Ack& m) {
  v("up_to", m.up_to);
}
template <typename V>
void VisitFields(V& v, LoadableCheckpoint& m) {
  v("epoch", m.epoch), v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes);
}
template <typename V>
void VisitFields(V& v, AttemptStart& m) {
  v("epoch", m.epoch), v("step", m.step);
}
template <typename V>
void VisitFields(V& v, Ready& m) {
  v("step", m.step), v("refused", m.refused), v.Later("loadable", m.loadable);
  v.Later("earlier_starts", m.earlier_starts);
}
template <typename V>
void VisitFields(V& v, Progress& m) {
  v("phase", m.phase), v("step", m.step), v("count", m.count), v("waiting", m.waiting);
}
template <typename V>
void VisitFields(V&, Unknown&) {}

}  // namespace trainyard::channel
