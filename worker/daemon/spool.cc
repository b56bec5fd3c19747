#include "worker/daemon/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

}  // namespace

Spool::Spool(std::string directory, const std::string& name, uint64_t max_bytes)
    : directory_(std::move(directory)),
      prefix_(name + "."),
      max_bytes_(max_bytes),
      file_bytes_(std::min(kMaxFileBytes, max_bytes / 16)) {}

std::string Spool::Path(const File& file) const {
  return absl::StrCat(directory_, "/", prefix_, file.number);
}

void Spool::AddFile() {
  file_ = FileDescriptor();
  // A file that is there already is one that could not be read or listed. It is left alone.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
  File file;
  do {
    file.number = next_number_++;
    file_ = FileDescriptor(::open(Path(file).c_str(), kFlags, 0644));
  } while (!file_.valid() && errno == EEXIST);
  files_.push_back(file);
}

// The lines behind an empty file need not follow those before it.
void Spool::LeaveGap() {
  const std::string path = Path({.number = next_number_++});
  FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

void Spool::RemoveOldest() {
  const std::string path = Path(files_.front());
  // If a file before this one is there, the lines after this one must not seem to follow its lines.
  const uint64_t number = files_.front().number;
  const bool behind = (!unread_.empty() && unread_.front() < number) ||
                      std::any_of(files_.begin(), files_.end(),
                                  [&](const File& file) { return file.number < number; });
  if (!behind || ::truncate(path.c_str(), 0) != 0) ::unlink(path.c_str());
  total_bytes_ -= files_.front().bytes;
  files_.pop_front();
  if (files_.empty()) file_ = FileDescriptor();
}

uint64_t Spool::Append(const channel::Message& message, uint64_t sequence) {
  if (!file_.valid() || files_.back().bytes >= file_bytes_) AddFile();
  // After a failed write, a new line begins behind the torn one.
  const std::string line = absl::StrCat(
      failed_ ? "\n" : "", channel::WithChecksum(channel::Encode({message, ++last_line_})));
  if (!file_.valid() || ::write(file_.get(), line.data(), line.size()) != ssize_t(line.size())) {
    if (!failed_) {
      LogWarning("spool_failed", {{"error", ErrnoStatus(errno, "write to", directory_).message()}});
    }
    failed_ = true;
  }
  files_.back().bytes += line.size();
  files_.back().lines++;
  files_.back().last_sequence = sequence;
  total_bytes_ += line.size();
  if (total_bytes_ <= max_bytes_) return 0;
  const uint64_t dropped = files_.front().lines;
  LogWarning("spool_full", {{"spool", absl::StrCat(directory_, "/", prefix_)},
                            {"bound_bytes", max_bytes_},
                            {"dropped", dropped},
                            {"effect", "lost if this daemon ends before the controller has them"}});
  RemoveOldest();
  return dropped;
}

void Spool::Acknowledge(uint64_t sequence) {
  while (files_.size() > 1 && files_.front().last_sequence <= sequence) RemoveOldest();
  if (files_.empty() || files_.front().last_sequence > sequence || files_.front().lines == 0)
    return;
  // A small file that is being written stays, because most reports are acknowledged at once.
  if (files_.front().bytes >= file_bytes_) {
    RemoveOldest();
  } else if (::truncate(Path(files_.front()).c_str(), 0) == 0) {
    total_bytes_ -= std::exchange(files_.front().bytes, 0);
    files_.front().lines = 0;
  }
}

absl::StatusOr<std::vector<uint64_t>> Spool::List() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::vector<uint64_t> numbers;
  for (const absl::string_view name : names) {
    uint64_t number = 0;
    if (absl::StartsWith(name, prefix_) && absl::SimpleAtoi(name.substr(prefix_.size()), &number)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Spool::Lost Spool::Recover(const std::function<uint64_t(channel::Message)>& adopt,
                           absl::Duration& left) {
  Lost all;
  if (unread_.empty()) {
    const auto numbers = ReadWithin([&] { return List(); }, left);
    unlisted_ = MayPass(numbers.status());
    if (unlisted_) {
      ++all.unreadable_files;
      // Greater than any number that may be there.
      const auto now = uint64_t(absl::ToUnixSeconds(RealClock().Now()));
      next_number_ = std::max(next_number_, now);
      if (files_.empty()) LeaveGap();
    }
    unread_ = numbers.value_or(std::vector<uint64_t>());
    // While the directory could not be listed, this spool may have begun files of its own.
    std::erase_if(unread_, [&](uint64_t number) {
      return std::any_of(files_.begin(), files_.end(),
                         [&](const File& file) { return file.number == number; });
    });
  }
  channel::KeptLines lines(/*earlier_numbered=*/false);
  for (const uint64_t number : std::exchange(unread_, {})) {
    next_number_ = std::max(next_number_, number + 1);
    File file = {.number = number};
    const auto text = ReadWithin([&] { return ReadFile(Path(file), 4 * kMaxFileBytes); }, left);
    if (!text.ok()) {
      ++all.unreadable_files;
      if (MayPass(text.status())) unread_.push_back(number);
      LogError("spool_not_read", {{"error", text.status().message()}, {"effect", "it stays"}});
      lines.SkipFile();
      continue;
    }
    if (text->empty()) {  // All its lines have been acknowledged.
      lines.SkipFile();
      if (files_.empty() && unread_.empty()) ::unlink(Path(file).c_str());
      continue;
    }
    lines.BeginFile();
    const uint64_t before = lines.last_sequence();
    const channel::LostLines lost = lines.Read(*text, [&](channel::Message message) {
      file.last_sequence = adopt(std::move(message));
      ++file.lines;
    });
    if (lost.damaged + lost.missing > 0) {
      LogError("spool_lines_lost", {{"file", Path(file)},
                                    {"damaged", lost.damaged},
                                    {"missing", lost.missing},
                                    {"after_line", before},
                                    {"up_to_line", lines.last_sequence()}});
    }
    all.damaged += lost.damaged;
    all.missing += lost.missing;
    file.bytes = text->size();
    if (number + 1 == next_number_) last_line_ = lines.last_sequence();
    if (file.lines == 0) continue;  // A file of nothing but damage stays, unread.
    // The next line goes into a new file, because only the last file of the list may grow.
    file_ = FileDescriptor();
    total_bytes_ += file.bytes;
    files_.push_back(file);
  }
  // What is in the newest file is not known, so the next lines cannot follow.
  if (!unread_.empty() && unread_.back() + 1 == next_number_) LeaveGap();
  return all;
}

}  // namespace trainyard
