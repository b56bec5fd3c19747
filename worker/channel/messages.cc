#include "worker/channel/messages.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "common/worker_fields.h"

namespace trainyard::channel {

static void VisitFields(auto& v, Hello& m) {
  v.Version(kVersion);
  v("job_id", m.job_id), v("epoch", m.epoch), v("rank", m.rank), v("pid", m.pid);
}
static void VisitFields(auto& v, Set& m) { v("key", m.key), v.Bytes("value", m.value); }
static void VisitFields(auto& v, Get& m) { v("key", m.key); }
static void VisitFields(auto& v, Value& m) { v("key", m.key), v.Bytes("value", m.value); }
static void VisitFields(auto& v, Stop&) {
  std::string mode = "checkpoint";
  v("mode", mode);
}
static void VisitFields(auto& v, Ack& m) { v("up_to", m.up_to); }
static void VisitFields(auto& v, Progress& m) {
  v("phase", m.phase), v("step", m.step), v("count", m.count), v("waiting", m.waiting);
}
static void VisitFields(auto&, Unknown&) {}

namespace {

using Json = nlohmann::json;

constexpr const char* kTypes[] = {"hello", "ready", "step", "checkpoint", "set",    "get",
                                  "value", "stop",  "ack",  "progress",   "unknown"};
static_assert(std::size(kTypes) == std::variant_size_v<Message>);

template <size_t... i>
Message EmptyMessage(const std::string& type, std::index_sequence<i...>) {
  Message message = Unknown{};
  (void)((type == kTypes[i] && (message.emplace<i>(), true)) || ...);
  return message;
}

}  // namespace

std::string Encode(const Envelope& envelope) {
  Json json = {{"type", kTypes[envelope.message.index()]}};
  if (envelope.sequence != 0) json["sequence"] = envelope.sequence;
  std::visit([&](const auto& m) { WriteFields(json, m); }, envelope.message);
  return JsonText(json);
}

absl::StatusOr<Envelope> Decode(absl::string_view line) {
  const Json json = ParseJson(line);
  if (!json.is_object()) return absl::InvalidArgumentError("a line is not a JSON object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) {
    return absl::InvalidArgumentError("field 'type' is not a string");
  }
  constexpr auto kAll = std::make_index_sequence<std::size(kTypes)>();
  Envelope envelope{EmptyMessage(type->get<std::string>(), kAll)};
  const auto sequence = json.find("sequence");
  if (sequence != json.end() && sequence->is_number_unsigned()) {
    envelope.sequence = sequence->get<uint64_t>();
  }
  RETURN_IF_ERROR(std::visit([&](auto& m) { return ReadFields(json, m, type->get<std::string>()); },
                             envelope.message));
  return envelope;
}

}  // namespace trainyard::channel
