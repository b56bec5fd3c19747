// Who makes a call, and what that one may do.

#pragma once

#include <set>
#include <string>

#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

struct Principal {
  std::string name;  // As the audit log has it.
  std::set<v1::Role> roles;

  bool MayCall(const v1::Access& method) const;
};

}  // namespace trainyard::controller
