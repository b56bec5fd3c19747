// Makes reads of chosen files fail, in this process: linked into a test, the library stands before
// libc's open, openat, read and pread, and SQLite's. Files are chosen by a part of their path.

#pragma once

#include <string>

namespace trainyard {

enum class ReadFault {
  kEio,     // read and pread fail; a directory cannot be opened.
  kEmfile,  // open fails, as with the next two.
  kEacces,
  kEnoent,
  kShort,  // read and pread return half of what is asked for.
};

// While it lives, the next `times` opened files (or directories) whose path ends with `path` have
// the fault, and so do the reads of such files that are open already. Several may live at once.
class FaultyReads {
 public:
  FaultyReads(ReadFault fault, std::string path, int times = 1 << 30);
  ~FaultyReads();
  FaultyReads(const FaultyReads&) = delete;
  FaultyReads& operator=(const FaultyReads&) = delete;

  int met() const;  // How many files have had it.
};

}  // namespace trainyard
