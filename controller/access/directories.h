// The places in a controller's state directory of the files that decide who gets in.

#pragma once

#include <string>

namespace trainyard::controller {

inline std::string AuthorityDirectory(const std::string& state) { return state + "/authority"; }
inline std::string GrantsDirectory(const std::string& state) { return state + "/grants"; }

}  // namespace trainyard::controller
