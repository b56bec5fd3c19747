// File operations for durable state. Errors name the path and the cause.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the error of a call that failed with `error` (errno), for example "cannot open /a/b: No
// such file or directory". Codes:
//   NOT_FOUND            ENOENT
//   RESOURCE_EXHAUSTED   ENOSPC, EDQUOT: the disk is full
//   PERMISSION_DENIED    EACCES, EPERM
//   FAILED_PRECONDITION  EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, EROFS: a retry would not help
//   INTERNAL             all others
absl::Status ErrnoStatus(int error, absl::string_view doing, absl::string_view path);

// Returns the contents of a whole file. FAILED_PRECONDITION: the file has more than `limit_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit_bytes = 64 << 20);
// Does the same for a path at which others may have put anything. FAILED_PRECONDITION: there is no
// regular file. A named pipe, for example, is refused at once; ReadFile would wait for a writer.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            uint64_t limit_bytes = 64 << 20);
// Does the same for a directory whose other users must not choose which file is read. Follows no
// link, and refuses a file that has a second name, because the file may belong to somebody else.
absl::StatusOr<std::string> ReadFileOfOthers(const std::string& path,
                                             uint64_t limit_bytes = 64 << 20);
// Reads at most `bytes` of such a file from `offset` on. Empty: this is the end of the file.
absl::StatusOr<std::string> ReadPartOfOthers(const std::string& path, uint64_t offset,
                                             uint64_t bytes);
absl::Status SyncFileOfOthers(const std::string& path);

// Replaces the file so that readers see the old contents or the new, and that the new contents
// survive a power cut: writes a temporary file beside it, fsync, rename, fsync of the directory.
// Two writers of one path are not supported.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents);
// Checks that WriteFileAtomic can replace the path now, for a program that will need to much later.
// FAILED_PRECONDITION: the path is something else than a regular file. Others: of a file beside it.
absl::Status CheckReplaceable(const std::string& path);

absl::Status SyncFile(const std::string& path);  // Syncs what anybody has written to the file.
absl::Status SyncDirectory(const std::string& path);
absl::Status MakeDirectories(const std::string& path);  // Like mkdir -p; mode 0755.
// Returns the names, sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
absl::Status RemoveTree(const std::string& path);  // A missing path is OK. Does not follow links.
bool Exists(const std::string& path);
// Drops the file from the page cache if the file system can, so that the next read asks the disk.
// Data that were not synced stay in the cache.
void DropCached(const std::string& path);
void DropCachedFiles(const std::string& directory);  // DropCached of each file that lies there.

}  // namespace trainyard
