// Who makes a call, and what this caller may do.

#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/violations.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

struct Principal {
  std::string name = {};  // As the audit log has it.
  std::set<v1::Role> roles = {};
  std::string name_space = {};  // A viewer's and a submitter's; empty: all namespaces.
  std::string grant_id = {};    // Empty: the caller has no grant.
  std::string worker_id = {};   // The only worker that the caller may be; empty: any.
  std::string hosts = {};       // A joiner's: a shell's pattern for names of hosts; empty: any.
  bool local = false;           // The user of the controller's own machine.
  absl::Time expires = absl::InfiniteFuture();

  bool MayCall(const v1::Access& method) const;
  // The name by which limits count calls. It is unique: two grants may have the same name, so their
  // ids are added. People of issuers have unique names, and no grant has such a name.
  std::string account() const;
};

// No job is in a namespace of this name.
inline constexpr char kNoNamespace[] = "\n";
// Returns the namespace whose jobs a list shows to a caller who sees the namespace `seen` and asks
// for `wanted`. Empty names mean all namespaces.
std::string NamespaceToList(const std::string& seen, const std::string& wanted);

// Whether a text can be a name in a certificate, a log and a URI.
bool IsName(absl::string_view text);
std::string WantedName();  // The rule for names in words.
void CheckName(absl::string_view field, absl::string_view text, Violations& violations);

inline constexpr char kWantedRole[] = "viewer, submitter, operator, admin or joiner";

// Returns "submitter" for ROLE_SUBMITTER, and the other way round. ROLE_UNSPECIFIED: no role has
// this name.
std::string NameOf(v1::Role role);
v1::Role RoleOf(absl::string_view name);

// The name in a worker's certificate: trainyard://worker/WORKER_ID#GRANT_ID.
struct WorkerName {
  std::string worker_id;
  std::string grant_id;
};
std::string ToUri(const WorkerName& name);
// Returns whether the URI is that of a worker, and sets `name` if so.
bool ParseUri(absl::string_view uri, WorkerName& name);

}  // namespace trainyard::controller
