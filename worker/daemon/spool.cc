#include "worker/daemon/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/log.h"

namespace trainyard {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

}  // namespace

Spool::Spool(std::string directory, const std::string& name, uint64_t max_bytes)
    : directory_(std::move(directory)),
      prefix_(name + "."),
      max_bytes_(max_bytes),
      file_bytes_(std::min(kMaxFileBytes, max_bytes / 16)) {}

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Spool::Path(const File& file) const {
  return absl::StrCat(directory_, "/", prefix_, file.number);
}

void Spool::AddFile() {
  if (fd_ >= 0) ::close(fd_);
  files_.push_back({.number = next_number_++});
  fd_ = ::open(Path(files_.back()).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void Spool::RemoveOldest() {
  ::unlink(Path(files_.front()).c_str());
  total_bytes_ -= files_.front().bytes;
  files_.pop_front();
  if (files_.empty() && fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

uint64_t Spool::Append(const channel::Message& message, uint64_t sequence) {
  if (fd_ < 0 || files_.back().bytes >= file_bytes_) AddFile();
  const std::string line = absl::StrCat(channel::Encode({message}), "\n");
  if (fd_ < 0 || ::write(fd_, line.data(), line.size()) != ssize_t(line.size())) {
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

void Spool::Recover(const std::function<uint64_t(channel::Message)>& adopt) {
  const auto names = ListDirectory(directory_);
  if (!names.ok()) return;
  for (const absl::string_view name : *names) {
    File file;
    if (absl::StartsWith(name, prefix_) &&
        absl::SimpleAtoi(name.substr(prefix_.size()), &file.number)) {
      files_.push_back(file);
    }
  }
  std::sort(files_.begin(), files_.end(),
            [](const File& a, const File& b) { return a.number < b.number; });
  for (File& file : files_) {
    next_number_ = file.number + 1;
    const std::string text = ReadFile(Path(file), 4 * kMaxFileBytes).value_or("");
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      auto envelope = channel::Decode(line);
      if (!envelope.ok()) continue;
      file.last_sequence = adopt(std::move(envelope->message));
      ++file.lines;
    }
    file.bytes = text.size();
    total_bytes_ += file.bytes;
    if (file.lines == 0) ::unlink(Path(file).c_str());
  }
  std::erase_if(files_, [](const File& file) { return file.lines == 0; });
}

}  // namespace trainyard
