// Finds what an earlier `trainyard up` left running. Children of a killed 'up' end by themselves,
// but workers drain first, and keep their state directories locked until they have ended.

#pragma once

#include <string>

namespace trainyard::cli {

// Returns a directory of `state` ("controller", "worker-0") that a running controller or worker has
// locked, or "" if there is none. The caller must hold the lock of `state` itself: this function
// takes each free lock for a moment, and a process of another 'up' must not start in that moment.
std::string FindPredecessor(const std::string& state);

}  // namespace trainyard::cli
