#include "worker/channel/messages.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard::channel {
namespace {

using Json = nlohmann::json;

const char* TypeName(const Message& message) {
  static constexpr const char* kNames[] = {"hello", "ready", "step", "checkpoint", "set",    "get",
                                           "value", "stop",  "ack",  "progress",   "unknown"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return kNames[message.index()];
}

// The fields of each message, once: both directions visit them.
template <typename V>
void Fields(V&& v, CollectiveUse& m) {
  v("op", m.op), v("group", m.group), v("calls", m.calls), v("bytes", m.bytes);
  v("seconds", m.seconds);
}
template <typename V>
void Fields(V&& v, GpuReading& m) {
  v("utilization", m.utilization), v("memory_used_bytes", m.memory_used_bytes);
  v("power_watts", m.power_watts), v("sm_clock_hertz", m.sm_clock_hertz);
  v("temperature_celsius", m.temperature_celsius), v("throttle_reasons", m.throttle_reasons);
}
template <typename V>
void Fields(V&& v, Hello& m) {
  int64_t version = kVersion;
  v("version", version);
  v("job_id", m.job_id), v("epoch", m.epoch), v("rank", m.rank), v("pid", m.pid);
}
template <typename V>
void Fields(V&& v, Step& m) {
  ForEachNumber(m, [&](const StepNumber& row, auto& number) { v(row.name, number); });
  for (const auto& [name, phase] : kPhases) v(name, m.phases.*phase);
  v("step", m.step), v("tokens", m.tokens), v("seconds", m.seconds);
  v("peak_flops", m.peak_flops), v("skipped", m.skipped);
  v("model_flops", m.model_flops), v("memory_bytes", m.memory_bytes);
  v("memory_planned_bytes", m.memory_planned_bytes), v("time", m.time);
  v("collectives", m.collectives), v("gpu", m.gpu), v("epoch", m.epoch);
}
template <typename V>
void Fields(V&& v, Checkpoint& m) {
  v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes), v("seconds", m.seconds);
  v("retained", m.retained), v("error", m.error);
}
template <typename V>
void Fields(V&& v, Set& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
void Fields(V&& v, Get& m) {
  v("key", m.key);
}
template <typename V>
void Fields(V&& v, Value& m) {
  v("key", m.key), v.Bytes("value", m.value);
}
template <typename V>
void Fields(V&& v, Stop&) {
  std::string mode = "checkpoint";
  v("mode", mode);
}
template <typename V>
void Fields(V&& v, Ack& m) {
  v("up_to", m.up_to);
}
template <typename V>
void Fields(V&& v, LoadableCheckpoint& m) {
  v("epoch", m.epoch), v("step", m.step), v("path", m.path), v("size_bytes", m.size_bytes);
}
template <typename V>
void Fields(V&& v, AttemptStart& m) {
  v("epoch", m.epoch), v("step", m.step);
}
template <typename V>
void Fields(V&& v, Ready& m) {
  v("step", m.step), v("refused", m.refused), v("loadable", m.loadable);
  v("earlier_starts", m.earlier_starts);
}
template <typename V>
void Fields(V&& v, Progress& m) {
  v("phase", m.phase), v("step", m.step), v("count", m.count), v("waiting", m.waiting);
}
template <typename V>
void Fields(V&&, Unknown&) {}

class Writer {
 public:
  explicit Writer(Json& json) : json_(json) {}
  template <typename T>
  void operator()(const char* name, const T& value) {
    json_[name] = value;
  }
  void operator()(const char* name, double value) {
    // JSON has no NaN; null stands for every value that is not finite.
    json_[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  }
  void operator()(const char* name, const std::optional<double>& value) {
    if (value) (*this)(name, *value);
  }
  void operator()(const char* name, const std::vector<CheckpointId>& ids) {
    json_[name] = Json::array();
    for (const CheckpointId& id : ids) json_[name].push_back({id.epoch, id.step});
  }
  void operator()(const char* name, const std::vector<CollectiveUse>& uses) {
    WriteObjects(name, uses);
  }
  void operator()(const char* name, const std::vector<LoadableCheckpoint>& checkpoints) {
    WriteObjects(name, checkpoints);
  }
  void operator()(const char* name, const std::vector<AttemptStart>& starts) {
    WriteObjects(name, starts);
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) json_[name] = *value;
  }
  void operator()(const char* name, std::optional<GpuReading> reading) {
    if (reading) Fields(Writer(json_[name]), *reading);
  }
  void Bytes(const char* name, const std::string& value) {
    json_[name] = absl::Base64Escape(value);
  }

 private:
  template <typename T>
  void WriteObjects(const char* name, const std::vector<T>& objects) {
    for (T object : objects) Fields(Writer(json_[name].emplace_back()), object);
  }

  Json& json_;
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    if (const Json* field = Find(name)) Value(*field, name, value);
  }
  template <typename T>
  void operator()(const char* name, std::vector<T>& values) {
    const Json* field = Find(name);
    if (field == nullptr || !Expect(field->is_array(), name, "a list")) return;
    for (const Json& element : *field) Value(element, name, values.emplace_back());
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    if (!json_.contains(name)) return;
    (*this)(name, value.emplace());
  }
  void operator()(const char* name, std::vector<CollectiveUse>& uses) { ReadObjects(name, uses); }
  void operator()(const char* name, std::vector<LoadableCheckpoint>& checkpoints) {
    ReadObjects(name, checkpoints);
  }
  void operator()(const char* name, std::vector<AttemptStart>& starts) {
    ReadObjects(name, starts);
  }
  void operator()(const char* name, std::optional<GpuReading>& reading) {
    const auto field = json_.find(name);
    if (field == json_.end() || !Expect(field->is_object(), name, "an object")) return;
    Reader reader(*field);
    Fields(reader, reading.emplace());
    if (status_.ok()) status_ = reader.status();
  }
  void Bytes(const char* name, std::string& value) {
    std::string text;
    (*this)(name, text);
    if (status_.ok()) Expect(absl::Base64Unescape(text, &value), name, "base64");
  }
  const absl::Status& status() const { return status_; }

 private:
  // Absent where there are none, and from a trainer of a version before.
  template <typename T>
  void ReadObjects(const char* name, std::vector<T>& objects) {
    const auto field = json_.find(name);
    if (field == json_.end() || !Expect(field->is_array(), name, "a list")) return;
    for (const Json& element : *field) {
      if (!Expect(element.is_object(), name, "a list of objects")) return;
      Reader reader(element);
      Fields(reader, objects.emplace_back());
      if (status_.ok()) status_ = reader.status();
    }
  }
  const Json* Find(const char* name) {
    const auto found = json_.find(name);
    return Expect(found != json_.end(), name, "present") ? &*found : nullptr;
  }
  template <typename T>
  void Value(const Json& field, const char* name, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (Expect(field.is_boolean(), name, "a boolean")) value = field.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      Integer(field, name, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (Expect(field.is_string(), name, "a string")) value = field.get<std::string>();
    } else if constexpr (std::is_same_v<T, CheckpointId>) {
      if (!Expect(field.is_array() && field.size() == 2, name, "a list of [epoch, step]")) return;
      Integer(field[0], name, value.epoch);
      Integer(field[1], name, value.step);
    } else {
      Number(field, name, value);
    }
  }
  template <typename T>
  void Integer(const Json& field, const char* name, T& value) {
    Expect(ReadInteger(field, value), name,
           std::is_unsigned_v<T> ? "a whole number from 0 that fits" : "a whole number that fits");
  }
  void Number(const Json& field, const char* name, double& value) {
    if (!Expect(field.is_number() || field.is_null(), name, "a number or null")) return;
    value = field.is_null() ? std::numeric_limits<double>::quiet_NaN() : field.get<double>();
  }
  bool Expect(bool holds, const char* name, const char* wanted) {
    if (!holds && status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("field '", name, "' is not ", wanted));
    }
    return holds;
  }
  const Json& json_;
  absl::Status status_;
};

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
  // Writing changes nothing; the visitor takes mutable references for the sake of reading.
  Message message = envelope.message;
  std::visit([&](auto& m) { Fields(Writer(json), m); }, message);
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
  Reader reader(json);
  std::visit([&](auto& m) { Fields(reader, m); }, envelope.message);
  if (!reader.status().ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(type->get<std::string>(), ": ", reader.status().message()));
  }
  return envelope;
}

}  // namespace trainyard::channel
