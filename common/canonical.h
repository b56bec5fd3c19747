// Opens what lies at a canonical path (Roots::FindDirectory) while others may put links in its
// place. No link is followed, also not in the middle of the path: it was made after the path was
// resolved, and may lead anywhere. So a path that was checked once stays where it was. Where the
// kernel or a sandbox lacks openat2(2), a link in the middle is followed.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"

namespace trainyard {

// Errors are those of ErrnoStatus (files.h). PERMISSION_DENIED also says that a link is in
// the path.

// Opens for reading, with further `flags` of open(2).
absl::StatusOr<FileDescriptor> OpenCanonical(const std::string& path, int flags);

// Returns the names in a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListCanonical(const std::string& path);

// Returns the contents of a whole file. FAILED_PRECONDITION: it has more than `limit_bytes`, or is
// no regular file.
absl::StatusOr<std::string> ReadCanonical(const std::string& path, uint64_t limit_bytes);

}  // namespace trainyard
