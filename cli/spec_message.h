// Converts a job spec from its text's tree to the API's message, by reflection, so that a field of
// the message can be used in specs at once. train/config alone judges whether a spec can be read.

#pragma once

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"
#include "train/config/yaml.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Returns the field that has the value of `key` in the spec's mapping of a message. In a map, and
// for a field that only one family of models has, this is the value of the map. Null: none has it.
const google::protobuf::FieldDescriptor* FieldOf(const google::protobuf::Descriptor& message,
                                                 const std::string& key);

// Fills `spec`. train/config must have found nothing wrong with the form of `node`. A section
// without content is an empty message. Error: the message cannot hold a value, as of its range.
absl::Status FillMessage(const YamlNode& node, v1::JobSpec& spec);

}  // namespace trainyard::cli
