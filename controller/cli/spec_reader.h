// Fills a message from a YAML tree by reflection: a field added to the proto can be written in a
// spec at once.

#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <string>

#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard::cli {

class SpecReader {
 public:
  // `set` holds the paths that `--set` made; `checked` is what the check of specs finds, which says
  // what a value that cannot be read should have been. All outlive the reader.
  SpecReader(const std::map<std::string, std::string>& set, const Violations& checked,
             Violations& violations)
      : set_(set), checked_(checked), violations_(violations) {}

  // Adds to `message` what `node` says and to the violations all that is wrong with it. `path` is
  // the message's own path, empty for the root. Rules:
  //   mappings are messages or map fields; an absent value ("checkpoint:") is an empty message, and
  //   an error for a scalar; integers may be written as 1000, 1e3 or "1000"; doubles must be
  //   finite; bools are true or false; enum values with or without their prefix; of a oneof one
  //   member, where one made by --set replaces another.
  void Read(const YamlNode& node, const std::string& path, google::protobuf::Message& message);

 private:
  void ReadField(const YamlNode& node, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);
  void ReadMap(const YamlNode& node, const std::string& path,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  void AddUnreadable(const std::string& path, const std::string& text);
  // The name of the field that stands for `oneof`; empty if none is there.
  std::string ChosenMember(const YamlNode& node, const std::string& path,
                           const google::protobuf::OneofDescriptor& oneof);

  const std::map<std::string, std::string>& set_;
  const Violations& checked_;
  Violations& violations_;
};

}  // namespace trainyard::cli
