// Who makes a call, and what that one may do.

#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

struct Principal {
  std::string name = {};  // As the audit log has it.
  std::set<v1::Role> roles = {};
  std::string name_space = {};  // Of a viewer and a submitter.
  std::string grant_id = {};    // Empty: none stands behind it.
  std::string worker_id = {};   // The only worker it may be; empty: any.
  std::string hosts = {};       // Of a joiner: a shell's pattern for names of hosts; empty: any.
  bool local = false;           // The user of the controller's own machine.
  absl::Time expires = absl::InfiniteFuture();

  bool MayCall(const v1::Access& method) const;
  // By which limits count: two grants may have the same name; an issuer's people do not, and no
  // grant has theirs.
  std::string account() const;
};

// Of nobody: no job is in a namespace of this name.
inline constexpr char kNoNamespace[] = "\n";
// Whose jobs a list has, where the caller sees the namespace `seen` and asks for `wanted`; of both,
// empty is all of them.
std::string NamespaceToList(const std::string& seen, const std::string& wanted);

// What can stand as a name in a certificate, a log and a URI, and what to say where it cannot.
bool IsName(absl::string_view text);
std::string WantedName(absl::string_view found);

// "submitter" for ROLE_SUBMITTER, and back; ROLE_UNSPECIFIED where there is none of that name.
std::string NameOf(v1::Role role);
v1::Role RoleOf(absl::string_view name);

// The name in a worker's certificate: trainyard://worker/WORKER_ID#GRANT_ID.
struct WorkerName {
  std::string worker_id;
  std::string grant_id;
};
std::string ToUri(const WorkerName& name);
// False: the URI is no worker's.
bool ParseUri(absl::string_view uri, WorkerName& name);

}  // namespace trainyard::controller
