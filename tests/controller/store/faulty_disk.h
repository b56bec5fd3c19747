// A disk under SQLite that fails: at a call that changes a file (write, sync, truncate, delete),
// counted from 1 over all files. Where faulty_calls.cc is linked, the calls of this program's own
// to fsync and rename count, too.

#pragma once

#include <sqlite3.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace trainyard::controller {

enum class Fault {
  kNone,       // But no sync is made in earnest, so that tests are quick.
  kError,      // The call fails, and changes nothing; later ones work.
  kFull,       // As kError, and a write says that the disk is full.
  kShort,      // A write is torn in its middle and fails; later ones work.
  kDeath,      // A write is torn in its middle, and nothing is changed after it.
  kPowerCut,   // As kDeath; then LosePower undoes what was not synced.
  kStaysFull,  // From that call on, nothing can be written.
};

// Stands in for every file that SQLite opens while this lives; all are closed before it goes.
class FaultyDisk {
 public:
  FaultyDisk(Fault fault, int call);
  ~FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  // Another fault, at a call counted from now on.
  void Arm(Fault fault, int call);

  bool hit() const;
  void LosePower();  // Once the files are closed.

  // Of a call of this program's own.
  static bool OwnCallWorks();
  static bool Lives() { return Living() != nullptr; }

 private:
  struct File;
  struct Undo {
    int64_t size;  // Of the file.
    int64_t offset;
    std::string bytes;
  };

  static std::atomic<FaultyDisk*>& Living();
  enum class Verdict { kWork, kTear, kFail, kNoSpace };
  Verdict Judge(bool grows = false);
  void Remember(File& file, int64_t offset, int64_t bytes);

  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out);
  static int Delete(sqlite3_vfs* vfs, const char* name, int sync_directory);
  static int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset);
  static int Truncate(sqlite3_file* file, sqlite3_int64 size);
  static int Sync(sqlite3_file* file, int flags);
  static int Close(sqlite3_file* file);
  template <auto kMethod, typename... Arguments>
  static auto Forward(sqlite3_file* file, Arguments... arguments);
  static sqlite3_io_methods MethodsOf();

  sqlite3_vfs* const real_;
  sqlite3_vfs vfs_;
  mutable std::mutex mutex_;
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  int call_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::vector<Undo>> unsynced_ ABSL_GUARDED_BY(mutex_);  // By path.
};

}  // namespace trainyard::controller
