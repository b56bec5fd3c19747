#include "controller/store/guarded_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "controller/store/witness.h"

namespace trainyard::controller {
namespace {

constexpr int kMinPageBytes = 512;
constexpr int kHeaderBytes = 100;

// The log is synced at every 32nd transaction (witness.h), which would then take several times as
// long as any other. So the kernel is asked to begin writing the log after every fourth.
constexpr int kSyncsBeforeWriteOut = 4;

bool IsPage(int bytes, sqlite3_int64 offset) {
  return bytes >= kMinPageBytes && (bytes & (bytes - 1)) == 0 && offset % bytes == 0;
}

// Whether these bytes are the header of a database with checksums.
bool SaysChecked(const char* data, int bytes, sqlite3_int64 offset) {
  return offset == 0 && bytes >= kHeaderBytes && std::memcmp(data, "SQLite format 3", 16) == 0 &&
         data[20] == kPageChecksumBytes;
}

uint32_t PageNumber(int bytes, sqlite3_int64 offset) { return uint32_t(offset / bytes) + 1; }

std::array<uint32_t, 2> ChecksumOf(const char* page, int bytes, uint32_t number) {
  uint32_t s1 = number, s2 = 0;
  for (int i = 0; i < bytes - kPageChecksumBytes; i += 8) {
    std::array<uint32_t, 2> words;
    std::memcpy(words.data(), page + i, sizeof(words));
    s1 += words[0] + s2;
    s2 += words[1] + s1;
  }
  return {s1, s2};
}

bool IsGood(const char* page, int bytes, uint32_t number) {
  const std::array<uint32_t, 2> checksum = ChecksumOf(page, bytes, number);
  if (std::memcmp(page + bytes - kPageChecksumBytes, checksum.data(), kPageChecksumBytes) == 0) {
    return true;
  }
  // A free page that was never written, because the file was extended past it.
  return std::all_of(page, page + bytes, [](char c) { return c == 0; });
}

}  // namespace

// SQLite allocates memory for it, followed by memory for the file of the layer below.
struct GuardedDisk::File {
  sqlite3_file file;  // Must be first, because SQLite finds the methods there.
  GuardedDisk* disk;
  Kind kind;
  bool checked;    // The pages carry checksums.
  int descriptor;  // Of a log, for the hint in Sync; otherwise -1.
  int syncs;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  static File& Of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
};

GuardedDisk::GuardedDisk(Witness* witness)
    : witness_(witness),
      real_(sqlite3_vfs_find(nullptr)),
      name_(absl::StrCat("trainyard-", absl::Hex(reinterpret_cast<uintptr_t>(this)))),
      vfs_(*real_) {
  vfs_.zName = name_.c_str();
  vfs_.szOsFile = int(sizeof(File)) + real_->szOsFile;
  vfs_.pNext = nullptr;
  vfs_.pAppData = this;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  CHECK(sqlite3_vfs_register(&vfs_, 0) == SQLITE_OK);
}

GuardedDisk::~GuardedDisk() { sqlite3_vfs_unregister(&vfs_); }

GuardedDisk::File& GuardedDisk::DatabaseOf(sqlite3* db) {
  sqlite3_file* file = nullptr;
  CHECK(sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK);
  return File::Of(file);
}

bool GuardedDisk::ChecksPages(sqlite3* db) { return DatabaseOf(db).checked; }

absl::StatusOr<std::vector<uint32_t>> GuardedDisk::DamagedPages(sqlite3* db, uint32_t max_pages) {
  File& mine = DatabaseOf(db);
  sqlite3_file* real = mine.real();
  std::vector<uint32_t> damaged;
  sqlite3_int64 size = 0;
  const int known = real->pMethods->xFileSize(real, &size);
  if (!mine.checked || (known == SQLITE_OK && size == 0)) return damaged;
  const auto unreadable = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat("cannot read ", what));
  };
  std::array<unsigned char, 100> header;
  if (real->pMethods->xRead(real, header.data(), int(header.size()), 0) != SQLITE_OK) {
    return unreadable("its header");
  }
  int page_bytes = header[16] << 8 | header[17];
  if (page_bytes == 1) page_bytes = 65'536;
  if (known != SQLITE_OK || !IsPage(page_bytes, 0) || size % page_bytes != 0) {
    return unreadable(absl::StrCat("pages of ", page_bytes, " bytes from ", size, " bytes"));
  }
  std::string page(size_t(page_bytes), '\0');
  const uint32_t pages = uint32_t(std::min<sqlite3_int64>(size / page_bytes, max_pages));
  for (uint32_t number = 1; number <= pages; ++number) {
    const sqlite3_int64 offset = sqlite3_int64(number - 1) * page_bytes;
    if (real->pMethods->xRead(real, page.data(), page_bytes, offset) != SQLITE_OK) {
      return unreadable(absl::StrCat("page ", number));
    }
    if (!IsGood(page.data(), page_bytes, number)) damaged.push_back(number);
  }
  return damaged;
}

// Passes a call on to the file below.
template <auto kMethod, typename... Arguments>
auto GuardedDisk::Forward(sqlite3_file* file, Arguments... arguments) {
  sqlite3_file* real = File::Of(file).real();
  return (real->pMethods->*kMethod)(real, arguments...);
}

sqlite3_io_methods GuardedDisk::MethodsOf() {
  using M = sqlite3_io_methods;
  M methods{};
  methods.iVersion = 2;  // Not 3: memory-mapped reading would bypass the checksums.
  methods.xClose = Close;
  methods.xRead = Read;
  methods.xWrite = Write;
  methods.xTruncate = Truncate;
  methods.xSync = Sync;
  methods.xFileSize = Forward<&M::xFileSize>;
  methods.xLock = Forward<&M::xLock>;
  methods.xUnlock = Forward<&M::xUnlock>;
  methods.xCheckReservedLock = Forward<&M::xCheckReservedLock>;
  methods.xFileControl = Forward<&M::xFileControl>;
  methods.xSectorSize = Forward<&M::xSectorSize>;
  methods.xDeviceCharacteristics = Forward<&M::xDeviceCharacteristics>;
  methods.xShmMap = Forward<&M::xShmMap>;
  methods.xShmLock = Forward<&M::xShmLock>;
  methods.xShmBarrier = Forward<&M::xShmBarrier>;
  methods.xShmUnmap = Forward<&M::xShmUnmap>;
  return methods;
}

int GuardedDisk::Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
  auto* disk = static_cast<GuardedDisk*>(vfs->pAppData);
  File& mine = File::Of(file);
  mine.file.pMethods = nullptr;  // Must not be closed unless it is opened.
  sqlite3_file* real = mine.real();
  const int code = disk->real_->xOpen(disk->real_, name, real, flags, out);
  if (code != SQLITE_OK) return code;
  static const sqlite3_io_methods methods = MethodsOf();
  mine.file.pMethods = &methods;
  mine.disk = disk;
  mine.kind = flags & SQLITE_OPEN_MAIN_DB ? Kind::kDatabase
              : flags & SQLITE_OPEN_WAL   ? Kind::kLog
                                          : Kind::kOther;
  mine.checked = false;
  mine.descriptor = mine.kind == Kind::kLog ? ::open(name, O_RDONLY | O_CLOEXEC) : -1;
  mine.syncs = 0;
  if (mine.kind != Kind::kDatabase) return SQLITE_OK;
  std::array<char, kHeaderBytes> header{};
  sqlite3_int64 size = 0;
  if (const int known = real->pMethods->xFileSize(real, &size); known != SQLITE_OK) return known;
  if (size >= kHeaderBytes) (void)real->pMethods->xRead(real, header.data(), kHeaderBytes, 0);
  // An empty file will become a database with checksums.
  mine.checked = size == 0 || SaysChecked(header.data(), kHeaderBytes, 0);
  return SQLITE_OK;
}

int GuardedDisk::Close(sqlite3_file* file) {
  if (File::Of(file).descriptor >= 0) ::close(File::Of(file).descriptor);
  return Forward<&sqlite3_io_methods::xClose>(file);
}

int GuardedDisk::Delete(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  auto* disk = static_cast<GuardedDisk*>(vfs->pAppData);
  return disk->real_->xDelete(disk->real_, name, sync_directory);
}

int GuardedDisk::Read(sqlite3_file* file, void* data, int bytes, sqlite3_int64 offset) {
  File& mine = File::Of(file);
  const int code = Forward<&sqlite3_io_methods::xRead>(file, data, bytes, offset);
  if (code != SQLITE_OK || mine.kind != Kind::kDatabase) return code;
  mine.checked |= SaysChecked(static_cast<const char*>(data), bytes, offset);
  if (!mine.checked || !IsPage(bytes, offset)) return code;
  const uint32_t number = PageNumber(bytes, offset);
  if (IsGood(static_cast<const char*>(data), bytes, number)) return code;
  if (mine.disk->tolerated_.contains(number)) return code;
  LogError("store_page_damaged", {{"page", number}, {"bytes", bytes}});
  return SQLITE_IOERR_DATA;
}

int GuardedDisk::Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  File& mine = File::Of(file);
  std::string page;
  mine.checked |=
      mine.kind == Kind::kDatabase && SaysChecked(static_cast<const char*>(data), bytes, offset);
  if (mine.checked && IsPage(bytes, offset)) {
    page.assign(static_cast<const char*>(data), size_t(bytes));
    const auto checksum = ChecksumOf(page.data(), bytes, PageNumber(bytes, offset));
    std::memcpy(&page[size_t(bytes - kPageChecksumBytes)], checksum.data(), kPageChecksumBytes);
    data = page.data();
  }
  const int code = Forward<&sqlite3_io_methods::xWrite>(file, data, bytes, offset);
  if (code == SQLITE_OK && mine.kind == Kind::kLog && mine.disk->witness_ != nullptr) {
    mine.disk->witness_->OnLogWrite(static_cast<const char*>(data), size_t(bytes), offset);
  }
  return code;
}

int GuardedDisk::Truncate(sqlite3_file* file, sqlite3_int64 size) {
  File& mine = File::Of(file);
  // The creation of the file is rolled back.
  mine.checked |= mine.kind == Kind::kDatabase && size == 0;
  return Forward<&sqlite3_io_methods::xTruncate>(file, size);
}

int GuardedDisk::Sync(sqlite3_file* file, int flags) {
  File& mine = File::Of(file);
  const auto sync = [&] { return Forward<&sqlite3_io_methods::xSync>(file, flags); };
  if (mine.kind != Kind::kLog || mine.disk->witness_ == nullptr) return sync();
  const int code = mine.disk->witness_->OnLogSync(sync);
  // Nothing depends on this hint, so its failures are ignored.
  if (++mine.syncs % kSyncsBeforeWriteOut == 0 && mine.descriptor >= 0) {
    (void)::sync_file_range(mine.descriptor, 0, 0, SYNC_FILE_RANGE_WRITE);
  }
  return code;
}

}  // namespace trainyard::controller
