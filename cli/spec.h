// Turns the text of a job spec (YAML or JSON, with `--set` changes) into the API's message, and
// finds the places in the text that field violations are about. Start with SpecDocument.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "train/config/job_config.h"
#include "train/config/yaml.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

class SpecDocument {
 public:
  // Reads the file and parses its text. If `path` is "-", reads standard input.
  static absl::StatusOr<SpecDocument> Read(const std::string& path,
                                           const std::vector<std::string>& sets);

  // Parses the text. `name` is the text's name in messages: "spec.yaml". Each of `sets` is
  // "path=value". The path is like "batch.global", and the value is YAML; null removes the field.
  // Later ones win. INVALID_ARGUMENT: the YAML is broken; the message has the line. A usage error:
  // a `--set` is not path=value.
  static absl::StatusOr<SpecDocument> Parse(absl::string_view name, absl::string_view text,
                                            const std::vector<std::string>& sets);

  // If the spec has model.import, puts the architecture that the directory's config.json describes,
  // with the spec's overrides, into the spec. Does nothing where the spec has an architecture, or
  // where a field of the model is wrong, which the controller reports. INVALID_ARGUMENT: the path
  // is empty, or the directory has no model that this program knows; has a violation of
  // model.import.
  absl::Status ResolveImport();
  // The model that ResolveImport has put in. Nullopt: none.
  const std::optional<ModelConfig>& imported() const { return imported_; }

  // Makes one more change, "path=value". Messages about the field give `by` as its place.
  absl::Status Set(const std::string& change, const std::string& by);

  // INVALID_ARGUMENT: the spec cannot be read, or its axes, batch or model are wrong. Lists all
  // violations. The rules that concern the model and the layout together are not checked.
  struct Parsed {
    JobConfig job;
    ModelConfig model;
  };
  absl::StatusOr<Parsed> ToConfig() const;

  // INVALID_ARGUMENT: the spec cannot be read. Lists all violations (see Violations) that
  // train/config finds. The controller checks whether the values of a readable spec are legal.
  absl::StatusOr<v1::JobSpec> ToProto() const;

  // Returns an error of ToProto() or of the controller with its violations as lines "spec.yaml:7:
  // batch.global: ...". If none of them is about a field that `--set` changed, but another value of
  // such a field would help, this is the first line. Errors without violations are returned
  // unchanged.
  absl::Status Explain(const absl::Status& status) const;

  const std::string& name() const { return name_; }
  // What changes have taken out, because a spec cannot have both: "--set data.text.path=a replaces
  // data.synthetic and all that was set there".
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // Returns the value that a `--set` alone could have to make the layout legal. Absent if a
  // violation is about a `--set`, or if there is no such value.
  std::optional<FieldViolation> OtherSet(const std::vector<FieldViolation>& violations) const;
  std::string Place(absl::string_view field) const;  // "spec.yaml:7", "--set batch.global=3".

  std::string name_;
  YamlNode root_;
  std::map<std::string, std::string> set_;  // Paths that a `--set` changed, and how.
  std::optional<ModelConfig> imported_;
  std::vector<std::string> notes_;
};

}  // namespace trainyard::cli
