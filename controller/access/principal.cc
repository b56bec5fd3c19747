#include "controller/access/principal.h"

#include <algorithm>

namespace trainyard::controller {

bool Principal::MayCall(const v1::Access& method) const {
  return std::any_of(roles.begin(), roles.end(), [&](v1::Role role) {
    if (role == v1::ROLE_WORKER || method.least() == v1::ROLE_WORKER) return role == method.least();
    return role >= method.least();
  });
}

}  // namespace trainyard::controller
