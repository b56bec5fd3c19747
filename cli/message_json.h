// The API's messages as JSON: protobuf's own mapping for `-o json`, plain numbers for `-o jsonl`.

#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace trainyard::cli {

// Protobuf JSON with the original field names, fields at their default included, indented. Ends
// with a line break.
std::string ProtobufJson(const google::protobuf::Message& message);

// One object: integers and doubles are plain numbers in full precision (not finite: null), enums
// their names, timestamps RFC 3339 text; fields with presence that are not set are absent, others
// are always there.
nlohmann::ordered_json PlainJson(const google::protobuf::Message& message);

}  // namespace trainyard::cli
