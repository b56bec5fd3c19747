// Describes this build for --version, the build_info metric and checkpoint manifests.

#pragma once

namespace trainyard {

const char* Version();  // "0.1.0"
// Returns the short git commit, with "-dirty" appended if there were local changes. "unknown":
// there was no git.
const char* Revision();
const char* CudaVersion();  // The CUDA toolkit's, "13.0.48"; "none" without it.

}  // namespace trainyard
