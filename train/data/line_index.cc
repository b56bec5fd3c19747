#include "train/data/line_index.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/canonical.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/crc32.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr char kLineMagic[8] = {'T', 'Y', 'L', 'I', 'N', 'E', 'S', '3'};
constexpr size_t kDigestInName = 12;

// What the index was made of.
struct LineHeader {
  char magic[8] = {};
  uint64_t file_bytes = 0;
  int64_t changed_ns = 0;  // When the file was written last, in Unix time.
  uint64_t lines = 0;
  uint32_t crc = 0;        // CRC-32 of the arrays.
  char encoding[64] = {};  // The digest, in hexadecimal digits.
  uint32_t pairs = 0;      // 1: there is an array of rejected answers.
};
static_assert(sizeof(LineHeader) == 104);

uint32_t CrcOf(const LineIndex& index) {
  uint32_t crc = 0;
  for (const std::span<const std::byte> array : index.arrays()) {
    // Of no bytes zlib may see a null pointer, for which it returns 0.
    if (!array.empty()) crc = Crc32(crc, array.data(), array.size());
  }
  return crc;
}

absl::StatusOr<LineHeader> HeaderOf(const InputFile& file, const LineEncoding& encoding) {
  LineHeader header;
  std::memcpy(header.magic, kLineMagic, sizeof(kLineMagic));
  ASSIGN_OR_RETURN(header.changed_ns, file.ChangedNanoseconds());
  header.file_bytes = file.size();
  encoding.digest().copy(header.encoding, sizeof(header.encoding));
  return header;
}

bool ReadExactly(int file, void* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(file, static_cast<std::byte*>(to) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

// Where an index lies. The directory is opened once, without links on the way, and files in it are
// opened by name: so nobody can lead the program to another place.
struct IndexPlace {
  absl::StatusOr<FileDescriptor> directory;
  std::string name;
};

IndexPlace PlaceOf(const InputFile& file, const LineEncoding& encoding) {
  const std::filesystem::path path = file.CanonicalPath();
  return {OpenCanonical(path.parent_path().string(), O_DIRECTORY),
          absl::StrCat(path.filename().string(), ".", encoding.digest().substr(0, kDigestInName),
                       kLineIndexSuffix)};
}

// Whether the lines can be those of a file of so many bytes.
bool CanBe(const LineIndex& index, uint64_t file_bytes) {
  uint64_t after = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const IndexedLine line = index[i];
    if (line.offset < after || line.offset >= file_bytes) return false;
    if (line.target != 0 && line.target >= line.ids) return false;
    if (line.rejected_target != 0 && line.rejected_target >= line.rejected_ids) return false;
    after = line.offset + 1;
  }
  return index.size() > 0;
}

// Nothing if there is no index, or none of this file and encoding.
std::optional<LineIndex> ReadIndex(const IndexPlace& place, const LineHeader& wanted) {
  if (!place.directory.ok()) return std::nullopt;
  const FileDescriptor file(::openat(place.directory->get(), place.name.c_str(),
                                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info;
  LineHeader header;
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      !ReadExactly(file.get(), &header, sizeof(header))) {
    return std::nullopt;
  }
  // A line has two bytes at least.
  if (header.lines > wanted.file_bytes / 2 + 1 || header.pairs > 1) return std::nullopt;
  const uint64_t bytes = LineIndex::Bytes(header.lines, header.pairs != 0);
  if (uint64_t(info.st_size) != sizeof(header) + bytes) return std::nullopt;
  const auto mapped = MappedFile::Map(file.get(), sizeof(header) + bytes);
  if (mapped == nullptr) return std::nullopt;
  LineIndex index(mapped, sizeof(header), header.lines, header.pairs != 0);
  LineHeader same = wanted;
  same.lines = header.lines;
  same.pairs = header.pairs;
  same.crc = CrcOf(index);
  if (std::memcmp(&same, &header, sizeof(header)) != 0) return std::nullopt;
  if (!CanBe(index, header.file_bytes)) return std::nullopt;
  mapped->Forget();
  return index;
}

// A line, and its number in the file.
struct Line {
  absl::string_view bytes;
  uint64_t offset = 0;
  int64_t number = 0;
};

// Encodes the lines of a block with a thread for each encoder.
class BlockEncoder {
 public:
  BlockEncoder(const std::string& path, const LineEncoding& encoding) : path_(path) {
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 64u);
    for (unsigned i = 0; i < threads; ++i) encoders_.push_back(encoding.NewEncoder());
  }
  size_t threads() const { return encoders_.size(); }

  // Appends the lines to the index. The error is that of the first line that is wrong.
  absl::Status Add(const std::vector<Line>& lines, LineIndex& index) {
    std::vector<absl::Status> errors(lines.size());
    std::vector<IndexedLine> indexed(lines.size());
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    for (const std::unique_ptr<LineEncoder>& encoder : encoders_) {
      threads.emplace_back([&] {
        EncodedLine encoded;
        for (size_t i = next++; i < lines.size(); i = next++) {
          errors[i] = encoder->Encode(lines[i].bytes, encoded);
          indexed[i] = IndexOf(encoded, lines[i].offset);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < lines.size(); ++i) {
      if (errors[i].ok()) continue;
      return absl::Status(errors[i].code(),
                          absl::StrCat(path_, ":", lines[i].number, ": ", errors[i].message()));
    }
    for (const IndexedLine& line : indexed) index.Add(line);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  std::vector<std::unique_ptr<LineEncoder>> encoders_;
};

absl::StatusOr<LineIndex> EncodeAll(const InputFile& file, const LineEncoding& encoding) {
  BlockEncoder encoder(file.path(), encoding);
  const size_t block = encoder.threads() << 20;
  LineIndex index;
  std::string pending;
  uint64_t offset = 0;  // Of `pending`.
  int64_t number = 1;   // Of its first line.
  while (offset < file.size()) {
    const uint64_t left = file.size() - offset - pending.size();
    const size_t begin = pending.size(), bytes = size_t(std::min<uint64_t>(block, left));
    pending.resize(begin + bytes);
    RETURN_IF_ERROR(file.ReadAt(offset + begin, pending.data() + begin, bytes));
    const bool last = offset + pending.size() == file.size();
    std::vector<Line> lines;
    size_t at = 0;
    for (size_t end = 0; at < pending.size(); at = end + 1, ++number) {
      end = pending.find('\n', at);
      if (end == pending.npos && !last) break;
      end = std::min(end, pending.size());
      const absl::string_view line = absl::string_view(pending).substr(at, end - at);
      if (line.size() > kMostLineBytes) break;
      if (!absl::StripAsciiWhitespace(line).empty()) lines.push_back({line, offset + at, number});
    }
    RETURN_IF_ERROR(encoder.Add(lines, index));
    at = std::min(at, pending.size());
    if (std::min(pending.find('\n', at), pending.size()) - at > kMostLineBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ":", number, ": wanted a line of at most ", kMostLineBytes, " bytes"));
    }
    pending.erase(0, at);
    offset += at;
  }
  if (index.size() > 0) return index;
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": wanted a line with a chat, found none"));
}

absl::Status WriteAll(const FileDescriptor& file, std::span<const std::byte> bytes,
                      const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", name);
    bytes = bytes.subspan(size_t(n));
  }
  return absl::OkStatus();
}

absl::Status WriteTo(const FileDescriptor& file, LineHeader header, const LineIndex& index,
                     const std::string& name) {
  header.lines = index.size();
  header.pairs = !index.arrays()[1].empty();
  header.crc = CrcOf(index);
  RETURN_IF_ERROR(WriteAll(file, std::as_bytes(std::span(&header, 1)), name));
  for (const std::span<const std::byte> array : index.arrays()) {
    RETURN_IF_ERROR(WriteAll(file, array, name));
  }
  return ::fsync(file.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "sync", name);
}

// Replaces the index, whole or not at all.
absl::Status WriteIndex(const IndexPlace& place, const LineHeader& header, const LineIndex& index) {
  RETURN_IF_ERROR(place.directory.status());
  const int directory = place.directory->get();
  const std::string temporary = absl::StrCat(
      place.name, ".", ::getpid(), ".", absl::ToInt64Nanoseconds(RealClock().Monotonic()), ".tmp");
  const FileDescriptor file(::openat(directory, temporary.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoStatus(errno, "create", temporary);
  absl::Status written = WriteTo(file, header, index, temporary);
  if (written.ok() &&
      ::renameat(directory, temporary.c_str(), directory, place.name.c_str()) != 0) {
    written = ErrnoStatus(errno, "rename to", place.name);
  }
  if (!written.ok()) ::unlinkat(directory, temporary.c_str(), 0);
  return written;
}

// Waits until no other process encodes the file, but not for ever: what locks the file may be
// somebody else. Where a file cannot be locked, does not wait.
class EncodingLock {
 public:
  explicit EncodingLock(const InputFile& file) : descriptor_(file.descriptor()) {
    const absl::Duration end = RealClock().Monotonic() + kMostWait;
    while (!(held_ = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0)) {
      if (errno != EWOULDBLOCK || RealClock().Monotonic() > end) return;
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
  ~EncodingLock() {
    if (held_) ::flock(descriptor_, LOCK_UN);
  }
  EncodingLock(const EncodingLock&) = delete;
  EncodingLock& operator=(const EncodingLock&) = delete;

 private:
  static constexpr absl::Duration kMostWait = absl::Minutes(10);
  const int descriptor_;
  bool held_ = false;
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::Map(int file, size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<std::byte*>(at), bytes}));
}

MappedFile::~MappedFile() { ::munmap(bytes_.data(), bytes_.size()); }

void MappedFile::Forget() const { ::madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED); }

LineIndex::LineIndex(std::shared_ptr<const MappedFile> file, size_t begin, size_t lines, bool pairs)
    : mapped_(std::move(file)) {
  CHECK(begin % alignof(Line) == 0 && begin + Bytes(lines, pairs) <= mapped_->bytes().size())
      << begin << ", " << lines;
  const std::byte* const at = mapped_->bytes().data() + begin;
  mapped_lines_ = {reinterpret_cast<const Line*>(at), lines};
  mapped_rejected_ = {reinterpret_cast<const Conversation*>(at + lines * sizeof(Line)),
                      pairs ? lines : 0};
}

bool LineIndex::operator==(const LineIndex& other) const {
  return std::ranges::equal(lines(), other.lines()) &&
         std::ranges::equal(rejected(), other.rejected());
}

IndexedLine LineIndex::operator[](size_t i) const {
  const Line& line = lines()[i];
  const Conversation rejected = this->rejected().empty() ? Conversation() : this->rejected()[i];
  return {.offset = line.offset,
          .ids = line.first.ids,
          .target = line.first.target,
          .rejected_ids = rejected.ids,
          .rejected_target = rejected.target};
}

void LineIndex::Add(const IndexedLine& line) {
  CHECK(mapped_ == nullptr) << "the lines are those of a file";
  if (line.rejected_ids != 0) rejected_.resize(lines_.size());
  const bool pairs = line.rejected_ids != 0 || !rejected_.empty();
  lines_.push_back({.offset = line.offset, .first = {.ids = line.ids, .target = line.target}});
  if (pairs) rejected_.push_back({.ids = line.rejected_ids, .target = line.rejected_target});
}

std::array<std::span<const std::byte>, 2> LineIndex::arrays() const {
  return {std::as_bytes(lines()), std::as_bytes(rejected())};
}

IndexedLine IndexOf(const EncodedLine& encoded, uint64_t offset) {
  const auto target = [&](size_t begin, size_t end) {
    for (size_t i = begin + 1; i < end; ++i) {
      if (encoded.counts[i] != 0) return uint32_t(i - begin);
    }
    return uint32_t{0};
  };
  const size_t ids = encoded.ids.size(), first = encoded.rejected == 0 ? ids : encoded.rejected;
  return {.offset = offset,
          .ids = uint32_t(first),
          .target = target(0, first),
          .rejected_ids = uint32_t(ids - first),
          .rejected_target = target(first, ids)};
}

absl::StatusOr<LineIndex> OpenLineIndex(const InputFile& file, const LineEncoding& encoding) {
  ASSIGN_OR_RETURN(const LineHeader wanted, HeaderOf(file, encoding));
  const IndexPlace place = PlaceOf(file, encoding);
  if (auto index = ReadIndex(place, wanted)) return *std::move(index);
  const EncodingLock lock(file);
  if (auto index = ReadIndex(place, wanted)) return *std::move(index);  // Another has made it.
  ASSIGN_OR_RETURN(LineIndex index, EncodeAll(file, encoding));
  const absl::Status written = WriteIndex(place, wanted, index);
  if (written.ok()) {
    // The mapped index takes no memory of this process alone. Whoever replaces it at this moment is
    // no reason to fail.
    if (auto mapped = ReadIndex(place, wanted)) return *std::move(mapped);
    return index;
  }
  // So every rank encodes the file at each start.
  LogWarning("line_index_not_kept", {{"file", file.path()}, {"why", written.message()}});
  return index;
}

absl::Status ReadLine(const InputFile& file, const LineIndex& index, int64_t line,
                      std::string& out) {
  const size_t i = size_t(line);
  const uint64_t begin = index.offset(i);
  const uint64_t end = i + 1 < index.size() ? index.offset(i + 1) : file.size();
  out.resize(size_t(std::min<uint64_t>(end - begin, kMostLineBytes + 1)));  // No blank lines.
  RETURN_IF_ERROR(file.ReadAt(begin, out.data(), out.size()));
  out.resize(std::min(out.size(), out.find('\n')));
  return absl::OkStatus();
}

}  // namespace trainyard
