// The file operations that durable state needs, with errors that name the path and the cause.

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
// Does the same where those others must not choose which file is read: no link is followed, and a
// file that has another name, too, is refused, since it may be somebody else's.
absl::StatusOr<std::string> ReadFileOfOthers(const std::string& path,
                                             uint64_t limit_bytes = 64 << 20);
// At most `bytes` of it, from `offset` on; empty at its end.
absl::StatusOr<std::string> ReadPartOfOthers(const std::string& path, uint64_t offset,
                                             uint64_t bytes);
absl::Status SyncFileOfOthers(const std::string& path);

// Readers see the old contents or the new, and the new survive a power cut: temporary file beside
// it, fsync, rename, fsync of the directory. Two writers of one path are not supported.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents);

absl::Status SyncFile(const std::string& path);  // What has been written to it, by whomever.
absl::Status SyncDirectory(const std::string& path);
absl::Status MakeDirectories(const std::string& path);  // As mkdir -p; mode 0755.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);  // Names, sorted.
absl::Status RemoveTree(const std::string& path);  // Absent is OK; does not follow links.
bool Exists(const std::string& path);
// The next read of the file asks the disk, where the file system can; what was not synced stays.
void DropCached(const std::string& path);
void DropCachedFiles(const std::string& directory);  // DropCached of each file that lies there.

}  // namespace trainyard
