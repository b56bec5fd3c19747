// The namespaces of a cluster, and how much of the cluster each namespace may use. A file lists
// them. The file may be changed while the controller runs:
//
//   research:
//     devices: 16                              # its jobs hold at most 16; absent: any number
//     roots: [/data/research, /ckpt/research]  # paths of its jobs lie below; absent: anywhere
//   default: {}
//
// Without a file every namespace exists, and none has limits.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "controller/access/principal.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

struct NamespaceLimits {
  std::optional<uint32_t> devices = {};
  std::vector<std::string> roots = {};  // Absolute; empty: anywhere.
};

// INVALID_ARGUMENT, with all violations: the text is not a mapping of names to devices and roots.
absl::StatusOr<std::map<std::string, NamespaceLimits>> ParseNamespaces(const std::string& yaml);

// Thread-safe.
class Namespaces {
 public:
  // Empty path: there is no file. Errors: those of reading and parsing the file, to which nobody
  // but its owner may be able to write (ReadTrusted of security/secret_file.h).
  static absl::StatusOr<std::unique_ptr<Namespaces>> Open(const std::string& path);

  // NOT_FOUND: the file does not name the namespace.
  absl::StatusOr<NamespaceLimits> Find(const std::string& name) const;
  // Absent: the namespace may hold any number of devices. 0: the file does not name the namespace.
  std::optional<uint32_t> DeviceQuota(const std::string& name) const;

  // Returns the spec of a job that `submitter` submits to the namespace `name`: its facts then name
  // the submitter, the namespace and the namespace's roots. INVALID_ARGUMENT (violations): a path
  // lies outside the namespace's roots, the job wants more devices than the namespace may ever
  // hold, or there is no such namespace.
  absl::StatusOr<std::shared_ptr<const Spec>> Admit(const Spec& spec, const std::string& name,
                                                    const Principal& submitter) const;

  // Reads the file again. Returns whether the file has changed. If the file cannot be read or
  // parsed, the log says why, and the limits stay as they were.
  bool Refresh();

 private:
  explicit Namespaces(std::string path) : path_(std::move(path)) {}
  absl::Status Read();
  std::string Names() const;

  const std::string path_;
  mutable Mutex mutex_;
  std::map<std::string, NamespaceLimits> limits_ ABSL_GUARDED_BY(mutex_);
  // The file's text, and the last complaint about the file that was logged. Used by Open, then by
  // Refresh alone.
  std::string seen_, complaint_;
};

}  // namespace trainyard::controller
