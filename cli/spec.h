// From a job spec's text (YAML or JSON, with `--set` changes) to the API's message, and from field
// violations back to the places in the text that they speak of. Start with SpecDocument.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "train/config/yaml.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

class SpecDocument {
 public:
  // `name` stands for the text in messages: "spec.yaml". Each of `sets` is "path=value", path as in
  // "batch.global" and value YAML, null for one that the spec shall not have; later ones win.
  // Errors: INVALID_ARGUMENT broken YAML, with its line; a usage error for a `--set` that is not
  // path=value.
  static absl::StatusOr<SpecDocument> Parse(absl::string_view name, absl::string_view text,
                                            const std::vector<std::string>& sets);

  // Errors: INVALID_ARGUMENT with every violation (see Violations) where the message cannot hold
  // what is written: unknown fields with the nearest known name, values of the wrong kind, two
  // members of a oneof. Whether what it holds is legal, the controller says.
  absl::StatusOr<v1::JobSpec> ToProto() const;

  // An error of ToProto() or of the controller, its violations as lines "spec.yaml:7: batch.global:
  // ...". Where none is of a field that `--set` changed, but another value of such a field would
  // do, that is the first line. Errors without violations come back as they are.
  absl::Status Explain(const absl::Status& status) const;

 private:
  absl::Status ApplySet(const std::string& set);
  void RecordSet(const std::string& path, const std::string& made);
  // What a `--set` alone could be to make the layout legal; empty where a violation is of one.
  std::optional<FieldViolation> OtherSet(const std::vector<FieldViolation>& violations) const;
  std::string Place(
      absl::string_view field) const;  // "spec.yaml:7", "--set batch.global=3", "spec.yaml"

  std::string name_;
  YamlNode root_;
  std::map<std::string, std::string> set_;  // Paths that `--set` made, changed or removed; how.
};

}  // namespace trainyard::cli
