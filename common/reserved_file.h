// Room on the disk for a small file that must be written even if the disk has become full: the last
// words of a process. The room is the file PATH.room beside the file.

#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Reserves `bytes` for PATH. A room that is there already is made that large. Errors: as of
// ErrnoStatus (common/files.h).
absl::Status ReserveFile(const std::string& path, size_t bytes);

// Writes PATH into its room: overwrites the room in place, syncs it, and gives it the name PATH.
// Readers see the whole file or none. NOT_FOUND: there is no room. RESOURCE_EXHAUSTED: the contents
// are longer than the room.
absl::Status WriteReservedFile(const std::string& path, absl::string_view contents);

// Removes the room, if there is one. Called once PATH was written in another way.
void ReleaseReserve(const std::string& path);

}  // namespace trainyard
