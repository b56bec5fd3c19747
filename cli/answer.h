// Prints an answer of the API in the format that the user asked for.

#pragma once

#include <google/protobuf/message.h>

#include "cli/message_json.h"
#include "cli/output.h"
#include "common/json.h"

namespace trainyard::cli {

// Prints the message with -o json or jsonl, and returns true. With a table, prints nothing and
// returns false: the caller prints the table.
inline bool PrintedAsJson(const google::protobuf::Message& message, Output& output) {
  if (output.format() == Format::kJson) output.Text(ProtobufJson(message));
  if (output.format() == Format::kJsonLines) output.Line(JsonText(PlainJson(message)));
  return output.format() != Format::kTable;
}

// Does the same for a list: one message with -o json, one line for each item with jsonl.
template <typename Items>
bool PrintedAsJson(const google::protobuf::Message& list, const Items& items, Output& output) {
  if (output.format() == Format::kJson) output.Text(ProtobufJson(list));
  if (output.format() == Format::kJsonLines) {
    for (const auto& item : items) output.Line(JsonText(PlainJson(item)));
  }
  return output.format() != Format::kTable;
}

}  // namespace trainyard::cli
