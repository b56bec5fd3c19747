#include "worker/daemon/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace trainyard {
namespace {

constexpr size_t kTailBytes = 1024;
constexpr size_t kMaxLineBytes = 8 << 10;

struct LogFile {
  std::string path;
  uint64_t begin = 0;
  uint64_t size = 0;
};

// Oldest first.
absl::StatusOr<std::vector<LogFile>> List(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  std::vector<LogFile> files;
  for (const std::string& name : names) {
    LogFile file;
    struct stat stat = {};
    if (!absl::StartsWith(name, "log.") || !absl::SimpleAtoi(name.substr(4), &file.begin)) continue;
    file.path = absl::StrCat(directory, "/", name);
    if (::stat(file.path.c_str(), &stat) != 0) continue;
    file.size = uint64_t(stat.st_size);
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const LogFile& a, const LogFile& b) { return a.begin < b.begin; });
  return files;
}

absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "open", path);
  size_t got = 0;
  ssize_t n = 1;
  while (got < bytes && n != 0) {
    n = ::pread(file.get(), &text[got], bytes - got, off_t(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path);
    got += size_t(n);
  }
  text.resize(got);
  return text;
}

}  // namespace

LogWriter::LogWriter(std::string directory, uint64_t file_bytes, uint32_t files)
    : directory_(std::move(directory)), file_bytes_(file_bytes), files_(files) {
  const auto present = List(directory_);
  if (present.ok() && !present->empty()) begin_ = present->back().begin + present->back().size;
}

void LogWriter::Rotate() {
  file_ = FileDescriptor();
  begin_ += size_;
  size_ = 0;
  const std::string path = absl::StrFormat("%s/log.%012d", directory_, begin_);
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const auto present = List(directory_);
  for (size_t i = 0; present.ok() && i + files_ < present->size(); ++i) {
    ::unlink((*present)[i].path.c_str());
  }
}

void LogWriter::Append(absl::string_view text) {
  absl::StrAppend(&tail_, text.substr(text.size() > kTailBytes ? text.size() - kTailBytes : 0));
  tail_.erase(0, tail_.size() - LastUtf8(tail_, kTailBytes).size());
  while (!text.empty()) {
    if (!file_.valid() || size_ >= file_bytes_) Rotate();
    const bool open = file_.valid();
    const ssize_t n =
        open ? ::write(file_.get(), text.data(), std::min(text.size(), file_bytes_)) : -1;
    if (n < 0 && open && errno == EINTR) continue;
    if (n <= 0) {
      if (!failed_) {
        LogError("rank_log_lost", {{"error", ErrnoStatus(errno, "write", directory_).message()}});
      }
      failed_ = true;
      return;
    }
    size_ += uint64_t(n);
    text.remove_prefix(size_t(n));
  }
}

absl::StatusOr<LogReader::Lines> LogReader::Read(const Limits& limits) {
  Lines result;
  ASSIGN_OR_RETURN(const std::vector<LogFile> files, List(directory_));
  if (files.empty()) return result;
  const uint64_t end = files.back().begin + files.back().size;
  // A position behind the end is damaged. Lines that come twice are better than none.
  uint64_t from = std::max(position_ > end ? 0 : position_, files.front().begin);
  if (end > from + limits.backlog_bytes) from = end - limits.bytes;
  // A file that is missing among the others is skipped.
  const auto holds = [&](const LogFile& file) { return file.begin + file.size > from; };
  const auto next = std::find_if(files.begin(), files.end(), holds);
  if (next != files.end()) from = std::max(from, next->begin);
  if (from > position_) result.skipped_bytes = from - position_;
  position_ = from;

  std::string text;
  for (const LogFile& file : files) {
    const uint64_t at = position_ + text.size();
    if (at < file.begin || at >= file.begin + file.size || text.size() >= limits.bytes) continue;
    const uint64_t wanted = std::min(limits.bytes - text.size(), file.begin + file.size - at);
    ASSIGN_OR_RETURN(const std::string range, ReadRange(file.path, at - file.begin, wanted));
    text += range;
  }
  const bool whole = position_ + text.size() >= end;
  const bool missing = !whole && text.size() < limits.bytes;  // What follows is.
  const bool at_the_end = missing || (whole && limits.with_partial_line);
  absl::string_view rest = text;
  while (!rest.empty()) {
    const size_t line_break = rest.find('\n');
    absl::string_view line = rest.substr(0, line_break);
    if (line_break == rest.npos && !at_the_end) {
      if (rest.size() < limits.bytes) break;
      // A line that fills the whole read is cut here, and the next read continues it.
      line = CutUtf8(rest, limits.bytes - 1);
    }
    if (!line.empty()) result.lines.emplace_back(CutUtf8(line, kMaxLineBytes));
    const size_t used = line_break == rest.npos ? line.size() : line_break + 1;
    position_ += used;
    rest.remove_prefix(used);
  }
  return result;
}

}  // namespace trainyard
