// What this build is: for --version, the build_info metric and checkpoint manifests.

#pragma once

namespace trainyard {

const char* Version();  // "0.1.0"
const char*
Revision();  // Short git commit, "-dirty" behind it for local changes; "unknown" without git.
const char* CudaVersion();  // Of the toolkit built with, "13.0.48"; "none" without.

}  // namespace trainyard
