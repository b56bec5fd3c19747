#include "worker/channel/messages.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "worker/channel/message_fields.h"

namespace trainyard::channel {

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
