// An answer of the API in the format that was asked for.

#pragma once

#include <google/protobuf/message.h>

#include "cli/message_json.h"
#include "cli/output.h"

namespace trainyard::cli {

// With -o json or jsonl prints the message and returns true; with a table leaves it to the caller.
inline bool PrintedAsJson(const google::protobuf::Message& message, Output& output) {
  if (output.format() == Format::kJson) output.Text(ProtobufJson(message));
  if (output.format() == Format::kJsonLines) output.Line(PlainJson(message).dump());
  return output.format() != Format::kTable;
}

// The same for a list: one message with -o json, its items one a line with jsonl.
template <typename Items>
bool PrintedAsJson(const google::protobuf::Message& list, const Items& items, Output& output) {
  if (output.format() == Format::kJson) output.Text(ProtobufJson(list));
  if (output.format() == Format::kJsonLines) {
    for (const auto& item : items) output.Line(PlainJson(item).dump());
  }
  return output.format() != Format::kTable;
}

}  // namespace trainyard::cli
