// What the manifests of a directory's checkpoints say to those who choose among checkpoints.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// Opens each good checkpoint once, however many ask. A manifest does not change once it is written,
// but it may be damaged later: one object is for one save. An error is not kept, because it may
// pass: a save writes a base again that checkpoints lack. Not thread-safe.
class OpenedCheckpoints {
 public:
  struct Facts {
    std::optional<ValidationResult> validation;
    std::optional<BaseReference> base;
    uint64_t size_bytes = 0;
  };

  // What the checkpoint at `path` says. What looks damaged is looked at once more past the cache.
  // Errors: those of ReadPastCache (load.h). The reference is valid as long as this object,
  // and one to an error until the next call.
  const absl::StatusOr<Facts>& Of(const std::string& path);

  // The same of a checkpoint that was opened without an error. Null: there is none.
  const Facts* Find(const std::string& path) const;

 private:
  std::map<std::string, absl::StatusOr<Facts>> facts_;
};

}  // namespace trainyard
