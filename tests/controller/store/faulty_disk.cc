#include "tests/controller/store/faulty_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "common/check.h"

namespace trainyard::controller {

// SQLite hands out memory for it; the file of the real disk lies behind it.
struct FaultyDisk::File {
  sqlite3_file file;  // First: SQLite knows a file by its methods.
  FaultyDisk* disk;
  std::string* path;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  static File& Of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
};

FaultyDisk::FaultyDisk(Fault fault, int call)
    : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_), fault_(fault), call_(call) {
  vfs_.zName = "faulty";
  vfs_.szOsFile = int(sizeof(File)) + real_->szOsFile;
  vfs_.pNext = nullptr;
  vfs_.pAppData = this;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  CHECK(sqlite3_vfs_register(&vfs_, 1) == SQLITE_OK);
  Living() = this;
}

FaultyDisk::~FaultyDisk() {
  Living() = nullptr;
  sqlite3_vfs_unregister(&vfs_);
}

std::atomic<FaultyDisk*>& FaultyDisk::Living() {
  static std::atomic<FaultyDisk*> living;
  return living;
}

bool FaultyDisk::OwnCallWorks() {
  FaultyDisk* disk = Living();
  return disk == nullptr || disk->Judge() == Verdict::kWork;
}

void FaultyDisk::Arm(Fault fault, int call) {
  std::lock_guard lock(mutex_);
  fault_ = fault;
  call_ = call;
  calls_ = 0;
}

bool FaultyDisk::hit() const {
  std::lock_guard lock(mutex_);
  return calls_ >= call_;
}

FaultyDisk::Verdict FaultyDisk::Judge(bool grows) {
  std::lock_guard lock(mutex_);
  ++calls_;
  if (fault_ == Fault::kNone || calls_ < call_) return Verdict::kWork;
  if (fault_ == Fault::kStaysFull) return grows ? Verdict::kNoSpace : Verdict::kWork;
  const bool tears = fault_ != Fault::kError && fault_ != Fault::kFull;
  if (calls_ == call_) return tears ? Verdict::kTear : Verdict::kFail;
  const bool dead = fault_ == Fault::kDeath || fault_ == Fault::kPowerCut;
  return dead ? Verdict::kFail : Verdict::kWork;
}

void FaultyDisk::Remember(File& file, int64_t offset, int64_t bytes) {
  sqlite3_file* real = file.real();
  Undo undo{.size = 0, .offset = offset, .bytes = {}};
  sqlite3_int64 size = 0;
  CHECK(real->pMethods->xFileSize(real, &size) == SQLITE_OK);
  undo.size = size;
  undo.bytes.resize(size_t(std::max<int64_t>(0, std::min(bytes, undo.size - offset))));
  CHECK(undo.bytes.empty() || real->pMethods->xRead(real, undo.bytes.data(), int(undo.bytes.size()),
                                                    offset) == SQLITE_OK);
  std::lock_guard lock(mutex_);
  unsynced_[*file.path].push_back(std::move(undo));
}

void FaultyDisk::LosePower() {
  std::lock_guard lock(mutex_);
  for (auto& [path, undos] : unsynced_) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0) << path;
    for (auto undo = undos.rbegin(); undo != undos.rend(); ++undo) {
      CHECK(::pwrite(fd, undo->bytes.data(), undo->bytes.size(), undo->offset) ==
            ssize_t(undo->bytes.size()));
      CHECK(::ftruncate(fd, undo->size) == 0);
    }
    ::close(fd);
  }
  unsynced_.clear();
}

// Hands a call on to the file behind.
template <auto kMethod, typename... Arguments>
auto FaultyDisk::Forward(sqlite3_file* file, Arguments... arguments) {
  sqlite3_file* real = File::Of(file).real();
  return (real->pMethods->*kMethod)(real, arguments...);
}

sqlite3_io_methods FaultyDisk::MethodsOf() {
  using M = sqlite3_io_methods;
  M methods{};
  methods.iVersion = 2;  // Without memory-mapped reading.
  methods.xClose = Close;
  methods.xRead = Forward<&M::xRead>;
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

int FaultyDisk::Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
  auto* disk = static_cast<FaultyDisk*>(vfs->pAppData);
  File& mine = File::Of(file);
  mine.file.pMethods = nullptr;  // Not to be closed unless opened.
  const int code = disk->real_->xOpen(disk->real_, name, mine.real(), flags, out);
  if (code != SQLITE_OK) return code;
  static const sqlite3_io_methods methods = MethodsOf();
  mine.file.pMethods = &methods;
  mine.disk = disk;
  mine.path = new std::string(name == nullptr ? "" : name);
  return SQLITE_OK;
}

int FaultyDisk::Close(sqlite3_file* file) {
  File& mine = File::Of(file);
  delete mine.path;
  return mine.real()->pMethods->xClose(mine.real());
}

int FaultyDisk::Delete(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  auto* disk = static_cast<FaultyDisk*>(vfs->pAppData);
  if (disk->Judge() != Verdict::kWork) return SQLITE_IOERR_DELETE;
  {
    std::lock_guard lock(disk->mutex_);
    disk->unsynced_.erase(name);
  }
  return disk->real_->xDelete(disk->real_, name, sync_directory);
}

int FaultyDisk::Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  File& mine = File::Of(file);
  const Verdict verdict = mine.disk->Judge(true);
  if (verdict == Verdict::kNoSpace) return SQLITE_FULL;
  if (verdict == Verdict::kFail) {
    return mine.disk->fault_ == Fault::kFull ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  }
  if (verdict == Verdict::kTear) bytes /= 2;
  mine.disk->Remember(mine, offset, bytes);
  const int code = mine.real()->pMethods->xWrite(mine.real(), data, bytes, offset);
  return verdict == Verdict::kTear ? SQLITE_IOERR_WRITE : code;
}

int FaultyDisk::Truncate(sqlite3_file* file, sqlite3_int64 size) {
  File& mine = File::Of(file);
  if (mine.disk->Judge() != Verdict::kWork) return SQLITE_IOERR_TRUNCATE;
  mine.disk->Remember(mine, size, INT64_MAX);
  return mine.real()->pMethods->xTruncate(mine.real(), size);
}

// Nothing is synced in earnest: what counts is which writes a power cut undoes.
int FaultyDisk::Sync(sqlite3_file* file, int) {
  File& mine = File::Of(file);
  if (mine.disk->Judge() != Verdict::kWork) return SQLITE_IOERR_FSYNC;
  std::lock_guard lock(mine.disk->mutex_);
  mine.disk->unsynced_.erase(*mine.path);
  return SQLITE_OK;
}

}  // namespace trainyard::controller
