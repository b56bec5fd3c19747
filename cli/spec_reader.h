// Fills a message from a YAML tree by reflection: a field added to the proto can be written in a
// spec at once.

#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard::cli {

// Whether `key` names a field that a spec has beside the message's own ones, and the wire in the
// message's map `fields`, because only one family of models has it.
bool IsBeside(const std::string& key, const google::protobuf::Descriptor& message);

class SpecReader {
 public:
  // `checked` is what the check of specs finds, which says what should have been where something
  // cannot be read. Both outlive the reader.
  SpecReader(const Violations& checked, Violations& violations)
      : checked_(checked), violations_(violations) {}

  // Adds to `message` what `node` says and to the violations all that is wrong with it. `path` is
  // the message's own path, empty for the root. Rules:
  //   mappings are messages or map fields, lists repeated scalars; an absent value ("checkpoint:")
  //   is an empty message or list, and an error for a scalar; integers may be written as 1000, 1e3
  //   or "1000"; doubles must be finite; bools are true or false; enum values with or without their
  //   prefix; of a oneof one member. A list's wrong item has the path "profile.ranks[1]". What
  //   IsBeside goes into the map as its text.
  void Read(const YamlNode& node, const std::string& path, google::protobuf::Message& message);

 private:
  void ReadField(const YamlNode& node, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);
  void ReadMap(const YamlNode& node, const std::string& path,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  void ReadList(const YamlNode& node, const std::string& path,
                const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  // Whether the map took the value.
  bool ReadBeside(const YamlField& field, const std::string& path,
                  google::protobuf::Message& message);
  void AddToMap(const YamlField& entry, const std::string& path,
                const google::protobuf::FieldDescriptor& map, google::protobuf::Message& message);
  void AddUnreadable(const std::string& path, absl::string_view found);

  const Violations& checked_;
  Violations& violations_;
};

}  // namespace trainyard::cli
