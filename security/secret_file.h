// Secret files, which only their owner may read, and trusted files, which say whom to believe and
// which only their owner may write. All functions may be called from any thread. Two writers of one
// path are not supported.

#pragma once

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Who may read a secret. In a pod with an fsGroup, Kubernetes lets this group read the pod's
// secrets; the group has no members outside the pod. Everywhere else, only the owner may read a
// secret.
enum class SecretReaders { kOwner, kOwnerAndGroup };

// Returns kOwnerAndGroup in a pod, where the variable KUBERNETES_SERVICE_HOST is set; else kOwner.
SecretReaders ReadersWhere(const char* kubernetes_service_host);

// Returns the contents of a file that only its owner can read and write.
//
// The function opens the path once and then checks and reads the open descriptor, so a file that
// somebody moves to the path in between is never read unchecked. Symbolic links are followed, and
// what they lead to is checked.
//
// NOT_FOUND: there is no such file, or the path is a link that leads nowhere.
// FAILED_PRECONDITION, with the command that mends the file where there is one: the path is not a
//   regular file; others than `readers` have any right to the file (the bits 077 of its mode, which
//   also cover access control lists; a group may read at most); neither this user nor root owns the
//   file; or the file has more than 64 KiB.
absl::StatusOr<std::string> ReadSecret(const std::string& path,
                                       SecretReaders readers = SecretReaders::kOwner);

// Does the same for a trusted file. Others may read the file, and may not write to it. The file may
// have up to 256 KiB.
absl::StatusOr<std::string> ReadTrusted(const std::string& path);

// Replaces the file at `path` by one with this text, which has mode 0600 from its first moment,
// whatever the umask. Atomic and durable as WriteFileAtomic of common/files.h. A symbolic link at
// the path is itself replaced; the file that it leads to stays as it was.
// FAILED_PRECONDITION: the text has more than 64 KiB, which ReadSecret would refuse.
absl::Status WriteSecret(const std::string& path, absl::string_view text);

// Makes a directory of mode 0700, and its missing parents as MakeDirectories does. The directory
// may exist already.
// FAILED_PRECONDITION, with the command that mends it: the path leads to something else than a
//   directory, to one that others have any right to, or to one that another user owns.
absl::Status MakeSecretDirectory(const std::string& path);

// The rule that ReadSecret applies to a regular file, for the effective user `user`.
absl::Status CheckSecretFile(const struct stat& info, uid_t user, absl::string_view path);
// The rule for SecretReaders::kOwnerAndGroup.
absl::Status CheckSecretFileOfPod(const struct stat& info, uid_t user, absl::string_view path);
// The rule that ReadTrusted applies.
absl::Status CheckTrustedFile(const struct stat& info, uid_t user, absl::string_view path);
// The rule that MakeSecretDirectory applies to a directory. Root's directories are refused to
// others: their owner alone could write there.
absl::Status CheckSecretDirectory(const struct stat& info, uid_t user, absl::string_view path);

}  // namespace trainyard
