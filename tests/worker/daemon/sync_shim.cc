// Notes what a program syncs and renames, in order: preloaded (LD_PRELOAD) into one program. The
// environment variable SYNC_LOG names the file that gets a line for each call: "sync PATH" or
// "rename PATH".

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>

namespace {

void Note(const char* what, const char* path) {
  const char* log = std::getenv("SYNC_LOG");
  const int fd = log == nullptr ? -1 : ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  ::dprintf(fd, "%s %s\n", what, path);
  ::close(fd);
}

void NoteSync(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof(path) - 1);
  if (n < 0) return;
  path[n] = '\0';
  Note("sync", path);
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int fd) {
  NoteSync(fd);
  return Next<int(int)>("fsync")(fd);
}

int fdatasync(int fd) {
  NoteSync(fd);
  return Next<int(int)>("fdatasync")(fd);
}

int rename(const char* from, const char* to) noexcept {
  Note("rename", to);
  return Next<int(const char*, const char*)>("rename")(from, to);
}

}  // extern "C"
