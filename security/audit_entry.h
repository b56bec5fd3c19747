// One line of the audit log: a call that changed something, or that was refused. Each entry carries
// a hash of itself and of the entry before, so that none can be changed, left out or put in
// without changing all hashes after it.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// The newest; older ones are removed.
inline constexpr uint64_t kAuditEntriesKept = 10'000'000;  // About 3 GB.

struct AuditEntry {
  uint64_t number = 0;          // 1, 2, 3 and so on: given by the store, as is the hash.
  absl::Time time = {};         // Of the controller's clock; whole microseconds.
  std::string caller = {};      // The name of the token or worker; "local": the loopback token's.
  std::string credential = {};  // The grant's id; empty: none stands behind the caller.
  std::string peer = {};        // As gRPC has it: "ipv4:10.0.0.7:51312".
  std::string method = {};      // "JobService.SubmitJob".
  std::string target = {};      // What was changed: the id of a job, a grant or a worker.
  std::string name_space = {};  // Of the job.
  std::string detail = {};      // What a person wants to know of the request; never a secret.
  std::string outcome = {};  // The code's name: "OK", "PERMISSION_DENIED"; "STARTED": it follows.
  std::string message = {};  // Of a refusal.
  std::string hash = {};
};

// SHA-256, as lower-case hexadecimal, of netstrings (LENGTH:BYTES,) of: the hash of the entry
// before (empty for entry 1), number, microseconds since 1970, caller, credential, peer, method,
// target, name_space, detail, outcome and message.
std::string ChainedHash(absl::string_view previous_hash, const AuditEntry& entry);

}  // namespace trainyard
