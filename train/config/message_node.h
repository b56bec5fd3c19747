// Turns the tree of a job spec into the API's message, and the message into the tree, by
// reflection. So a field of the message can be used in specs at once. The readers and checks of
// train/config alone judge whether a tree is a good spec. Ranks do not link this file.

#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard {

// Returns the field that has the value of `key` in the spec's mapping of a message. In a map, and
// for a field that only one family of models has, this is the value of the map. Null: none has it.
const google::protobuf::FieldDescriptor* FieldOf(const google::protobuf::Descriptor& message,
                                                 const std::string& key);

// Fills `message`, a spec or a section of one. ParseSpec must have found nothing wrong with the
// form of `node`. A section without content is an empty message. INVALID_ARGUMENT: the message
// cannot hold a value, as of its range.
absl::Status FillMessage(const YamlNode& node, google::protobuf::Message& message);

// Returns the tree of a spec that says what `message` says. Adds a violation for each field that
// this program does not know, since to ignore it is not what its writer meant, and for a tree of
// more than kMaxYamlNodes values.
YamlNode NodeOf(const google::protobuf::Message& message, Violations& violations);

}  // namespace trainyard
