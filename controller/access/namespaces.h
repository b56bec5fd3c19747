// The namespaces of a cluster: who shares it, and how much of it each may have. A file says so,
// which may be changed while the controller runs:
//
//   research:
//     devices: 16                           # held at once by its jobs; absent: any number
//     roots: [/data/research, /ckpt/research]  # its jobs' paths lie below these; absent: anywhere
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

// INVALID_ARGUMENT with all violations: wanted a mapping of names to devices and roots.
absl::StatusOr<std::map<std::string, NamespaceLimits>> ParseNamespaces(const std::string& yaml);

// Thread-safe.
class Namespaces {
 public:
  // Empty path: no file. Errors: those of reading and parsing it. Others may not write to it.
  static absl::StatusOr<std::unique_ptr<Namespaces>> Open(const std::string& path);

  // NOT_FOUND: the file does not name it.
  absl::StatusOr<NamespaceLimits> Find(const std::string& name) const;
  // Absent: no limit.
  std::optional<uint32_t> DeviceQuota(const std::string& name) const;

  // The facts of a spec, with what its namespace adds to them. INVALID_ARGUMENT (violations): a
  // path outside of the namespace's roots, more devices than the namespace may ever hold, an
  // unknown namespace.
  absl::StatusOr<std::shared_ptr<const Spec>> Admit(const Spec& spec, const std::string& name,
                                                    const Principal& submitter) const;

  // Reads the file again. True: other limits hold now. What cannot be read or parsed is logged, and
  // the limits stay as they were.
  bool Refresh();

 private:
  explicit Namespaces(std::string path) : path_(std::move(path)) {}
  absl::Status Read();
  std::string Names() const;

  const std::string path_;
  mutable Mutex mutex_;
  std::map<std::string, NamespaceLimits> limits_ ABSL_GUARDED_BY(mutex_);
  // Open's, then Refresh's: the file's text, and the last that was said of it.
  std::string seen_, complaint_;
};

}  // namespace trainyard::controller
