// The layer between SQLite and the disk (a VFS in SQLite's terms). Every page of the database file
// ends in a checksum, which is written with the page and compared at each read. So a changed byte
// is found wherever it is: in a row, an index, a header or a free page. The bytes that a
// transaction adds to the log pass through the witness (witness.h).
//
// The checksum is that of SQLite's own cksumvfs extension, started with the page's number: 64 bits,
// about 6 GB/s. SQLite reserves the last 8 bytes of each page if byte 20 of the header says so. A
// file without reserved bytes (schema version 3 and older) passes through unchanged.

#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::controller {

class Witness;

inline constexpr int kPageChecksumBytes = 8;

// Each connection has its own disk, which must outlive the connection. One thread may use it at a
// time.
class GuardedDisk {
 public:
  // `witness` is told what is written to the log; null: nobody is told. Uses the VFS that is
  // SQLite's default at the time of this call.
  explicit GuardedDisk(Witness* witness);
  ~GuardedDisk();
  GuardedDisk(const GuardedDisk&) = delete;
  GuardedDisk& operator=(const GuardedDisk&) = delete;

  const char* name() const { return name_.c_str(); }  // The name to give to sqlite3_open_v2.

  // Whether the pages of this connection's database carry checksums.
  static bool ChecksPages(sqlite3* db);

  // Returns which of the first `max_pages` pages differ from their checksums. The log must be
  // empty. Each later read of such a page fails with SQLITE_IOERR_DATA unless the page is
  // tolerated.
  static absl::StatusOr<std::vector<uint32_t>> DamagedPages(sqlite3* db, uint32_t max_pages);
  void Tolerate(const std::set<uint32_t>& pages) { tolerated_ = pages; }

 private:
  struct File;
  enum class Kind { kOther, kDatabase, kLog };

  static File& DatabaseOf(sqlite3* db);
  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out);
  static int Close(sqlite3_file* file);
  static int Delete(sqlite3_vfs* vfs, const char* name, int sync_directory);
  static int Read(sqlite3_file* file, void* data, int bytes, sqlite3_int64 offset);
  static int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset);
  static int Truncate(sqlite3_file* file, sqlite3_int64 size);
  static int Sync(sqlite3_file* file, int flags);
  template <auto kMethod, typename... Arguments>
  static auto Forward(sqlite3_file* file, Arguments... arguments);
  static sqlite3_io_methods MethodsOf();

  Witness* const witness_;
  sqlite3_vfs* const real_;
  const std::string name_;
  sqlite3_vfs vfs_;
  std::set<uint32_t> tolerated_;
};

}  // namespace trainyard::controller
