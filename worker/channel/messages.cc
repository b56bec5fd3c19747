#include "worker/channel/messages.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace trainyard::channel {

// The fields of each message. Writing and reading both visit them.
template <typename V>
static void VisitFields(V& v, CollectiveUse& m) {
  v("op", m.op), v("group", m.group), v("calls", m.calls), v("bytes", m.bytes);
  v("seconds", m.seconds);
}
template <typename V>
static void VisitFields(V& v, GpuReading& m) {
  v("utilization", m.utilization), v("memory_used_bytes", m.memory_used_bytes);
  v("power_watts", m.power_watts), v("sm_clock_hertz", m.sm_clock_hertz);
  v("temperature_celsius", m.temperature_celsius), v("throttle_reasons", m.throttle_reasons);
}
template <typename V>
static void VisitFields(V& v, Hello& m) {
  int64_t version = kVersion;
  v("version", version);
  v("job_id", m.job_id), v("epoch", m.epoch), v("rank", m.rank), v("pid", m.pid);
}
template <typename V>
static void VisitFields(V& v, Step& m) {
  ForEachNumber(m, [&](const StepNumber& row, auto& number) { v(row.name, number); });
  for (const auto& [name, phase] : kPhases) v(name, m.phases.*phase);
  v("step", m.step), v("tokens", m.tokens), v("seconds", m.seconds);
  v("peak_flops", m.peak_flops), v("skipped", m.skipped);
  v("model_flops", m.model_flops), v("memory_bytes", m.memory_bytes);
  v("memory_planned_bytes", m.memory_planned_bytes), v("time", m.time);
  v.Later("collectives", m.collectives), v("gpu", m.gpu), v("epoch", m.epoch);
}
template <typename V>
static void VisitFields(V& v, CheckpointId& m) {
  v.Pair(m.epoch, m.step);
}
template <typename V>
static void VisitFields(V& v, Checkpoint& m) {
  v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes), v("seconds", m.seconds);
  v("retained", m.retained), v("error", m.error);
}
template <typename V>
static void VisitFields(V& v, Set& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
static void VisitFields(V& v, Get& m) {
  v("key", m.key);
}
template <typename V>
static void VisitFields(V& v, Value& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
static void VisitFields(V& v, Stop&) {
  std::string mode = "checkpoint";
  v("mode", mode);
}
template <typename V>
static void VisitFields(V& v, Ack& m) {
  v("up_to", m.up_to);
}
template <typename V>
static void VisitFields(V& v, LoadableCheckpoint& m) {
  v("epoch", m.epoch), v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes);
}
template <typename V>
static void VisitFields(V& v, AttemptStart& m) {
  v("epoch", m.epoch), v("step", m.step);
}
template <typename V>
static void VisitFields(V& v, Ready& m) {
  v("step", m.step), v("refused", m.refused), v.Later("loadable", m.loadable);
  v.Later("earlier_starts", m.earlier_starts);
}
template <typename V>
static void VisitFields(V& v, Progress& m) {
  v("phase", m.phase), v("step", m.step), v("count", m.count), v("waiting", m.waiting);
}
template <typename V>
static void VisitFields(V&, Unknown&) {}

namespace {

using Json = nlohmann::json;

const char* TypeName(const Message& message) {
  static constexpr const char* kNames[] = {"hello", "ready", "step", "checkpoint", "set",    "get",
                                           "value", "stop",  "ack",  "progress",   "unknown"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return kNames[message.index()];
}

template <size_t i = 0>
Message NamedMessage(const std::string& type) {
  if constexpr (i < std::variant_size_v<Message>) {
    Message message(std::in_place_index<i>);
    return type == TypeName(message) ? message : NamedMessage<i + 1>(type);
  } else {
    return Unknown{};
  }
}

absl::Status CheckVersion(const Json& json) {
  const auto version = json.find("version");
  if (version != json.end() && version->is_number_integer() && *version == kVersion) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("hello: wanted version ", kVersion, ", found ",
                   version == json.end() ? "none" : version->dump().substr(0, 20)));
}

}  // namespace

std::string Encode(const Envelope& envelope) {
  Json json = {{"type", TypeName(envelope.message)}};
  if (envelope.sequence != 0) json["sequence"] = envelope.sequence;
  std::visit([&](const auto& m) { WriteFields(json, m); }, envelope.message);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Envelope> Decode(absl::string_view line) {
  const Json json = ParseJson(line);
  if (!json.is_object()) return absl::InvalidArgumentError("a line is not a JSON object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) {
    return absl::InvalidArgumentError("field 'type' is not a string");
  }
  Envelope envelope{NamedMessage(type->get<std::string>())};
  if (std::holds_alternative<Hello>(envelope.message)) RETURN_IF_ERROR(CheckVersion(json));
  const auto sequence = json.find("sequence");
  if (sequence != json.end() && sequence->is_number_unsigned()) {
    envelope.sequence = sequence->get<uint64_t>();
  }
  RETURN_IF_ERROR(std::visit([&](auto& m) { return ReadFields(json, m, type->get<std::string>()); },
                             envelope.message));
  return envelope;
}

}  // namespace trainyard::channel
