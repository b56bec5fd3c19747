// Fills a message from a YAML tree by reflection, so that a field added to the proto can be used in
// specs at once.

#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/violations.h"
#include "train/config/yaml.h"

namespace trainyard::cli {

// Whether `key` is a field of only one family of models. In a spec it stands beside the message's
// own fields, and in the message it is an entry of the map `fields`.
bool IsBeside(const std::string& key, const google::protobuf::Descriptor& message);

class SpecReader {
 public:
  // `checked` contains the violations that the check of specs has found. They say what a value
  // should have been that cannot be read. Both must outlive the reader.
  SpecReader(const Violations& checked, Violations& violations)
      : checked_(checked), violations_(violations) {}

  // Adds the content of `node` to `message`, and everything that is wrong with it to the
  // violations. `path` is the message's own path; empty for the root. The rules:
  //   mappings are messages or map fields, lists are repeated scalars; an absent value
  //   ("checkpoint:") is an empty message or list, and an error for a scalar; integers may be
  //   written as 1000, 1e3 or "1000"; doubles must be finite; bools are true or false; enum values
  //   have their prefix or not; only one member of a oneof may be set. A wrong item of a list has
  //   the path "profile.ranks[1]". A field for which IsBeside holds goes into the map as text.
  void Read(const YamlNode& node, const std::string& path, google::protobuf::Message& message);

 private:
  void ReadField(const YamlNode& node, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);
  void ReadMap(const YamlNode& node, const std::string& path,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  void ReadList(const YamlNode& node, const std::string& path,
                const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  // Returns whether the map took the value.
  bool ReadBeside(const YamlField& field, const std::string& path,
                  google::protobuf::Message& message);
  void AddToMap(const YamlField& entry, const std::string& path,
                const google::protobuf::FieldDescriptor& map, google::protobuf::Message& message);
  void AddUnreadable(const std::string& path, absl::string_view found);

  const Violations& checked_;
  Violations& violations_;
};

}  // namespace trainyard::cli
