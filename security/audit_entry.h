// One entry of the audit log: a call that changed something, or that was refused. Each entry
// carries a hash of itself and of the entry before. So whoever changes, removes or adds an entry
// must change all hashes after it.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// How many of the newest entries are kept.
inline constexpr uint64_t kAuditEntriesKept = 10'000'000;  // About 3 GB.

struct AuditEntry {
  uint64_t number = 0;          // 1, 2, 3 and so on. The store sets the number and the hash.
  absl::Time time = {};         // Of the controller's clock; whole microseconds.
  std::string caller = {};      // The name of the token or worker; "local" for the loopback token.
  std::string credential = {};  // The id of the caller's grant; empty: the caller has none.
  std::string peer = {};        // As gRPC has it: "ipv4:10.0.0.7:51312".
  std::string method = {};      // "JobService.SubmitJob".
  std::string target = {};      // What was changed: the id of a job, a grant or a worker.
  std::string name_space = {};  // The job's.
  std::string detail = {};      // More about the request, for people; never a secret.
  // A code's name, such as "OK" or "PERMISSION_DENIED". "STARTED": written before the change.
  std::string outcome = {};
  std::string message = {};  // Why the call was refused.
  std::string hash = {};
};

// SHA-256, as lower-case hexadecimal, of netstrings (LENGTH:BYTES,) of: the hash of the entry
// before (empty for entry 1), number, microseconds since 1970, caller, credential, peer, method,
// target, name_space, detail, outcome and message.
std::string ChainedHash(absl::string_view previous_hash, const AuditEntry& entry);

}  // namespace trainyard
