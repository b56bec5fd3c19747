// Linked into a program whose own calls a FaultyDisk is to judge, too.

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tests/controller/store/faulty_disk.h"

// In place of the C library's: the linker takes a program's own functions first. SQLite's own
// syncs are fdatasync, or fsync of a directory, which is counted as well.
extern "C" {
int rename(const char* from, const char* to) noexcept {
  if (!trainyard::controller::FaultyDisk::OwnCallWorks()) return errno = EIO, -1;
  return int(::syscall(SYS_rename, from, to));
}
int fsync(int fd) {
  if (!trainyard::controller::FaultyDisk::OwnCallWorks()) return errno = EIO, -1;
  return trainyard::controller::FaultyDisk::Lives() ? 0 : int(::syscall(SYS_fsync, fd));
}
}
