// Writes the API's messages as JSON: protobuf's own mapping for `-o json`, plain numbers for `-o
// jsonl`.

#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace trainyard::cli {

// Returns protobuf's JSON with the original field names, including fields with default values,
// indented. Ends with a line break.
std::string ProtobufJson(const google::protobuf::Message& message);

// Returns one object. Integers and doubles are plain numbers in full precision (null if not
// finite), enums are their names, and timestamps are RFC 3339 text. A field with presence that is
// not set is absent. All other fields are always there.
nlohmann::ordered_json PlainJson(const google::protobuf::Message& message);

}  // namespace trainyard::cli
