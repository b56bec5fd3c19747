#include "controller/store/witness.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {

constexpr uint64_t kSlots = 32;
// The number of slots in a file of an older version. The file grows when it is used.
constexpr uint64_t kFewestSlots = 16;
constexpr size_t kSlotBytes = 128 << 10;

// SQLite's layer accepts less than 128 KiB at once.
constexpr size_t kPieceBytes = 64 << 10;

// The layout of SQLite's log.
constexpr size_t kLogHeaderBytes = 32;
constexpr size_t kSaltOffset = 16;
constexpr size_t kSaltBytes = 8;

// The header of a slot; the bytes follow. The CRC-32 covers everything except itself.
struct SlotHeader {
  std::array<char, 8> magic;
  uint64_t number;
  int64_t offset;
  std::array<char, kSaltBytes> salt;
  uint32_t bytes;
  uint32_t crc;
};
constexpr std::array<char, 8> kMagic = {'T', 'Y', 'W', 'I', 'T', 'N', 'S', '1'};
static_assert(sizeof(SlotHeader) == 40);
constexpr size_t kMaxBytes = kSlotBytes - sizeof(SlotHeader);

uint32_t CrcOf(const SlotHeader& header, const char* bytes) {
  return Crc32(Crc32(0, &header, sizeof(header) - sizeof(header.crc)), bytes, header.bytes);
}

absl::Status CannotUse(absl::string_view doing, const std::string& path, int code) {
  const std::string text = absl::StrCat("cannot ", doing, " ", path, ": ", sqlite3_errstr(code));
  return code == SQLITE_FULL ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

}  // namespace

// A file that is opened as SQLite opens files, so that every layer below SQLite is also below the
// witness.
class Witness::File {
 public:
  static absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, bool create) {
    sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
    std::unique_ptr<File> file(new File(size_t(vfs->szOsFile)));
    const int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_SUPER_JOURNAL | (create ? SQLITE_OPEN_CREATE : 0);
    const int code = vfs->xOpen(vfs, path.c_str(), file->get(), flags, nullptr);
    if (code != SQLITE_OK) return CannotUse("open", path, code);
    return file;
  }
  static bool IsThere(const std::string& path) {
    sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
    int found = 0;
    return vfs->xAccess(vfs, path.c_str(), SQLITE_ACCESS_EXISTS, &found) != SQLITE_OK || found != 0;
  }
  ~File() {
    if (get()->pMethods != nullptr) get()->pMethods->xClose(get());
  }
  int64_t Size() {
    sqlite3_int64 size = 0;
    return get()->pMethods->xFileSize(get(), &size) == SQLITE_OK ? size : 0;
  }
  // Bytes beyond the end of the file are read as zero.
  int Read(std::string& data, int64_t offset) {
    for (size_t at = 0; at < data.size(); at += kPieceBytes) {
      const int bytes = int(std::min(kPieceBytes, data.size() - at));
      const int code = get()->pMethods->xRead(get(), &data[at], bytes, offset + int64_t(at));
      if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ) return code;
    }
    return SQLITE_OK;
  }
  int Write(const std::string& data, int64_t offset) {
    for (size_t at = 0; at < data.size(); at += kPieceBytes) {
      const int bytes = int(std::min(kPieceBytes, data.size() - at));
      const int code = get()->pMethods->xWrite(get(), &data[at], bytes, offset + int64_t(at));
      if (code != SQLITE_OK) return code;
    }
    return SQLITE_OK;
  }
  int Sync() { return get()->pMethods->xSync(get(), SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY); }

 private:
  explicit File(size_t bytes) : memory_((bytes + 7) / 8) { get()->pMethods = nullptr; }
  sqlite3_file* get() { return reinterpret_cast<sqlite3_file*>(memory_.data()); }
  std::vector<uint64_t> memory_;
};

Witness::Witness(std::string path) : path_(std::move(path)) { ClearSlot(); }

Witness::~Witness() = default;

absl::StatusOr<std::unique_ptr<Witness>> Witness::Load(const std::string& path) {
  std::unique_ptr<Witness> witness(new Witness(path));
  if (!File::IsThere(path)) return witness;
  ASSIGN_OR_RETURN(witness->file_, File::Open(path, false));
  RETURN_IF_ERROR(witness->ReadSlots());
  return witness;
}

absl::Status Witness::ReadSlots() {
  for (uint64_t slot = 0; slot < kSlots; ++slot) {
    std::string bytes(kSlotBytes, '\0');
    if (const int code = file_->Read(bytes, int64_t(slot * kSlotBytes)); code != SQLITE_OK) {
      return CannotUse("read", path_, code);
    }
    std::optional<Record> record = Decode(bytes);
    if (record && record->number % kFewestSlots == slot % kFewestSlots) {
      records_.push_back(*std::move(record));
    }
  }
  std::sort(records_.begin(), records_.end(),
            [](const Record& a, const Record& b) { return a.number < b.number; });
  if (!records_.empty()) newest_ = records_.back().number;
  return absl::OkStatus();
}

const std::string& Witness::Seal(uint64_t number) {
  SlotHeader header{.magic = kMagic,
                    .number = number,
                    .offset = offset_,
                    .salt = {},
                    .bytes = uint32_t(slot_.size() - sizeof(SlotHeader)),
                    .crc = 0};
  std::copy_n(salt_.data(), std::min(salt_.size(), kSaltBytes), header.salt.data());
  header.crc = CrcOf(header, slot_.data() + sizeof(header));
  std::memcpy(slot_.data(), &header, sizeof(header));
  return slot_;
}

void Witness::ClearSlot() {
  slot_.resize(sizeof(SlotHeader));
  offset_ = 0;
  one_piece_ = true;
}

std::optional<Witness::Record> Witness::Decode(const std::string& slot) {
  SlotHeader header;
  std::memcpy(&header, slot.data(), sizeof(header));
  const char* bytes = slot.data() + sizeof(header);
  if (header.magic != kMagic || header.bytes > kMaxBytes || CrcOf(header, bytes) != header.crc) {
    return std::nullopt;
  }
  return Record{header.number, std::string(header.salt.data(), kSaltBytes), header.offset,
                std::string(bytes, header.bytes)};
}

absl::StatusOr<uint64_t> Witness::RepairLog(const std::string& path) {
  if (records_.empty() || !File::IsThere(path)) return 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<File> log, File::Open(path, false));
  std::string header(kLogHeaderBytes, '\0');
  if (const int code = log->Read(header, 0); code != SQLITE_OK) {
    return CannotUse("read", path, code);
  }
  uint64_t repaired = 0;
  for (const Record& record : records_) {
    // Transactions of an older log were copied to the database before this log was begun.
    if (record.bytes.empty() || record.salt != header.substr(kSaltOffset, kSaltBytes)) continue;
    std::string found(record.bytes.size(), '\0');
    int code = log->Read(found, record.offset);
    if (code == SQLITE_OK && found == record.bytes) continue;
    if (code == SQLITE_OK) code = log->Write(record.bytes, record.offset);
    if (code != SQLITE_OK) return CannotUse("repair", path, code);
    for (size_t i = 0; i < found.size(); ++i) repaired += found[i] != record.bytes[i];
  }
  if (const int code = repaired > 0 ? log->Sync() : SQLITE_OK; code != SQLITE_OK) {
    return CannotUse("sync", path, code);
  }
  return repaired;
}

absl::Status Witness::Create(uint64_t number) {
  ASSIGN_OR_RETURN(file_, File::Open(path_, true));
  records_.clear();
  newest_.reset();
  std::string empty(kSlots * kSlotBytes, '\0');
  ClearSlot();
  const std::string& slot = Seal(number);
  std::copy(slot.begin(), slot.end(), empty.begin() + int64_t(number % kSlots * kSlotBytes));
  int code = file_->Write(empty, 0);
  if (code == SQLITE_OK) code = file_->Sync();
  if (code != SQLITE_OK) return CannotUse("write", path_, code);
  newest_ = number;
  return absl::OkStatus();
}

void Witness::Start(uint64_t number) {
  started_ = true;
  records_.clear();
  newest_ = log_synced_ = number;
}

void Witness::Begin() {
  expected_.reset();
  ClearSlot();
}

void Witness::Expect(uint64_t number) { expected_ = number; }

void Witness::OnLogWrite(const char* data, size_t bytes, int64_t offset) {
  if (!started_) return;
  if (offset == 0 && bytes >= kSaltOffset + kSaltBytes) {
    salt_.assign(data + kSaltOffset, kSaltBytes);
  }
  if (slot_.size() == sizeof(SlotHeader)) offset_ = offset;
  const int64_t at = offset - offset_ + int64_t(sizeof(SlotHeader));
  if (at < int64_t(sizeof(SlotHeader)) || at > int64_t(slot_.size()) ||
      size_t(at) + bytes > kSlotBytes) {
    one_piece_ = false;
    return;
  }
  slot_.replace(size_t(at), bytes, data, bytes);
}

int Witness::OnLogSync(const std::function<int()>& sync) {
  const int64_t end = offset_ + int64_t(slot_.size() - sizeof(SlotHeader));
  const bool commits =
      started_ && expected_.has_value() && (!one_piece_ || end > int64_t(kLogHeaderBytes));
  if (!commits) {
    const int code = sync();
    if (code == SQLITE_OK && started_) log_synced_ = *newest_;
    ClearSlot();
    return code;
  }
  const uint64_t number = *expected_;
  const bool fits = one_piece_ && !salt_.empty();
  if (!fits) slot_.resize(sizeof(SlotHeader));
  // The last transaction in this slot must be in the synced log before the slot is used again.
  const bool log_first = !fits || number >= log_synced_ + kSlots;
  if (log_first) {
    if (const int code = sync(); code != SQLITE_OK) return code;
    log_synced_ = number;
  }
  doubtful_ = number;
  const int code = WriteSlot(number, Seal(number));
  if (code == SQLITE_OK) newest_ = number, doubtful_.reset();
  ClearSlot();
  expected_.reset();
  return code;
}

void Witness::Forget() {
  Begin();
  if (!doubtful_) return;
  const std::string nothing(sizeof(SlotHeader), '\0');
  if (WriteSlot(*doubtful_, nothing) == SQLITE_OK) doubtful_.reset();
}

int Witness::WriteSlot(uint64_t number, const std::string& slot) {
  const int code = file_->Write(slot, int64_t(number % kSlots * kSlotBytes));
  return code == SQLITE_OK ? file_->Sync() : code;
}

}  // namespace trainyard::controller
