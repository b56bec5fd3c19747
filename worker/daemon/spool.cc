#include "worker/daemon/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/log.h"

namespace trainyard {
namespace {

constexpr uint64_t kMaxBytes = 256 << 20;

}  // namespace

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

void Spool::Append(const channel::Message& message) {
  if (failed_ || size_ > kMaxBytes) return;
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string line = absl::StrCat(channel::Encode({message}), "\n");
  if (fd_ < 0 || ::write(fd_, line.data(), line.size()) != ssize_t(line.size())) {
    LogWarning("spool_failed", {{"error", ErrnoStatus(errno, "write", path_).message()}});
    failed_ = true;
  }
  size_ += line.size();
}

void Spool::Clear() {
  if (size_ == 0) return;
  failed_ = ::truncate(path_.c_str(), 0) != 0;
  size_ = 0;
}

std::vector<channel::Message> Spool::Recover() {
  std::vector<channel::Message> messages;
  const auto text = ReadFile(path_, 2 * kMaxBytes);
  if (!text.ok()) return messages;
  size_ = text->size();
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    if (auto envelope = channel::Decode(line); envelope.ok()) {
      messages.push_back(std::move(envelope->message));
    }
  }
  return messages;
}

}  // namespace trainyard
