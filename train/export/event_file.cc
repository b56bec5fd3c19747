#include "train/export/event_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr size_t kHeadBytes = 12;     // The length and its checksum.
constexpr size_t kChecksumBytes = 4;  // The event's checksum.
constexpr uint64_t kMaxEventBytes = 64 << 20;
constexpr size_t kWriteBytes = 1 << 20;

uint32_t Masked(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

std::string Fixed(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(value >> 8 * i);
  return out;
}

uint64_t ReadFixed(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t(uint8_t(bytes[i])) << 8 * i;
  return value;
}

std::string RecordHead(absl::string_view event) {
  const std::string length = Fixed(event.size(), 8);
  return length + Fixed(Masked(length), 4);
}

std::string Record(absl::string_view event) {
  return absl::StrCat(RecordHead(event), event, Fixed(Masked(event), 4));
}

absl::Status InTheWay(const std::string& path, absl::string_view found) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": wanted an event file of an earlier export, or nothing, found ", found,
                   "; move it away or give another directory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Open(const std::string& path,
                                                           double wall_time) {
  // O_NONBLOCK: otherwise opening a named pipe would wait for its reader.
  FileDescriptor opened(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644));
  const int fd = opened.get();
  if (fd < 0 && errno == EISDIR) return InTheWay(path, "a directory");
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  std::unique_ptr<EventFile> file(new EventFile(path, std::move(opened)));
  struct stat stat = {};
  if (::fstat(fd, &stat) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(stat.st_mode)) return InTheWay(path, "something that is no file");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     ": another export is writing this file; wait until it ends, or give "
                     "another directory"));
  }
  RETURN_IF_ERROR(file->Scan(wall_time));
  return file;
}

absl::Status EventFile::Scan(double wall_time) {
  int64_t good = 0, records = 0;
  for (;; ++records) {
    ASSIGN_OR_RETURN(const std::string event, ReadRecord(good));
    if (event.empty() || !Take(event, records)) break;
    good += int64_t(kHeadBytes + event.size() + kChecksumBytes);
  }
  if (records == 0) RETURN_IF_ERROR(CheckForeign());
  if (::ftruncate(file_.get(), good) != 0) return ErrnoStatus(errno, "cut", path_);
  if (records == 0) Append(VersionEvent(wall_time));
  // One of TensorBoard's readers takes the first restart of a file for the file's start.
  if (records < 2) Append(RestartEvent(wall_time, 0));
  return Flush();
}

// Whether the event may be number `number`, from 0, of a file.
bool EventFile::Take(const std::string& event, int64_t number) {
  const std::optional<EventHead> head = ReadEventHead(event);
  if (!head || (head->kind == EventKind::kVersion) != (number == 0)) return false;
  if (head->kind == EventKind::kVersion) return true;
  if (number == 1 && head->kind != EventKind::kRestart) return false;
  if (head->kind == EventKind::kRestart) {
    while (!held_.empty() && held_.back().step >= head->step) held_.pop_back();
    return true;
  }
  if (!held_.empty() && head->step <= held_.back().step) return false;
  held_.push_back({head->step, Masked(event)});
  return true;
}

// Returns "" if there is no whole record.
absl::StatusOr<std::string> EventFile::ReadRecord(int64_t offset) const {
  ASSIGN_OR_RETURN(const std::string head, ReadAt(offset, kHeadBytes));
  const absl::string_view length = absl::string_view(head).substr(0, 8);
  if (head.size() < kHeadBytes || ReadFixed(head.substr(8)) != Masked(length)) return "";
  const uint64_t size = ReadFixed(length);
  if (size > kMaxEventBytes) return "";
  ASSIGN_OR_RETURN(std::string event,
                   ReadAt(offset + int64_t(kHeadBytes), size_t(size) + kChecksumBytes));
  if (event.size() < size + kChecksumBytes) return "";
  const uint64_t checksum = ReadFixed(absl::string_view(event).substr(size));
  event.resize(size);
  return checksum == Masked(event) ? event : "";
}

// Returns fewer bytes if the file ends before.
absl::StatusOr<std::string> EventFile::ReadAt(int64_t offset, size_t bytes) const {
  std::string out(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(file_.get(), out.data() + done, bytes - done, offset + int64_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path_);
    if (n == 0) break;
    done += size_t(n);
  }
  out.resize(done);
  return out;
}

// Checks a file without a whole first event. OK if the first event is torn, because its length is
// always the same.
absl::Status EventFile::CheckForeign() const {
  const std::string wanted = Record(VersionEvent(0).bytes);
  ASSIGN_OR_RETURN(const std::string found, ReadAt(0, wanted.size()));
  const absl::string_view head = absl::string_view(wanted).substr(0, kHeadBytes);
  const bool torn = found.size() < wanted.size() &&
                    absl::StartsWith(head, absl::string_view(found).substr(0, kHeadBytes));
  return torn ? absl::OkStatus() : InTheWay(path_, "a file of another form");
}

absl::Status EventFile::Put(const SummaryEvent& event) {
  if (next_ > 0 && event.step <= held_[next_ - 1].step) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a step above ", held_[next_ - 1].step, ", found ", event.step));
  }
  const Held put{event.step, Masked(event.bytes)};
  if (next_ < held_.size()) {
    if (held_[next_] == put) {
      ++next_;
      return absl::OkStatus();
    }
    TakeBack(event.wall_time, std::min(event.step, held_[next_].step));
  }
  Append(event);
  held_.push_back(put);
  ++next_;
  return unwritten_.size() < kWriteBytes ? absl::OkStatus() : Flush();
}

void EventFile::TakeBack(double wall_time, int64_t step) {
  Append(RestartEvent(wall_time, step));
  held_.resize(next_);
}

void EventFile::Append(const SummaryEvent& event) { unwritten_ += Record(event.bytes); }

absl::Status EventFile::Flush() {
  absl::string_view left = unwritten_;
  while (!left.empty()) {
    const ssize_t n = ::write(file_.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path_);
    left.remove_prefix(size_t(n));
  }
  unwritten_.clear();
  return absl::OkStatus();
}

absl::Status EventFile::Finish(double wall_time) {
  if (next_ < held_.size()) TakeBack(wall_time, held_[next_].step);
  RETURN_IF_ERROR(Flush());
  return ::fsync(file_.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "sync", path_);
}

}  // namespace trainyard
