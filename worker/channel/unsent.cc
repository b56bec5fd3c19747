#include "worker/channel/unsent.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard::channel {
namespace {

// About a million steps: a rank whose daemon was away for all of them.
constexpr uint64_t kMostUnsentBytes = 1 << 30;
constexpr uint64_t kPartBytes = 1 << 20;
static_assert(kPartBytes > kMaxLineBytes);

}  // namespace

void UnsentFile::Append(absl::string_view line) {
  if (path_.empty()) return;
  if (!file_.valid()) {
    file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  // After a failed write, start a new line behind the torn one.
  const std::string text = absl::StrCat(failed_ ? "\n" : "", WithChecksum(line));
  const bool open = file_.valid();
  if (open && ::write(file_.get(), text.data(), text.size()) == ssize_t(text.size())) return;
  if (std::exchange(failed_, true)) return;
  LogWarning("unsent_not_kept", {{"error", ErrnoStatus(errno, "write", path_).message()}});
}

void UnsentFile::Clear() {
  if (!file_.valid()) return;
  file_ = FileDescriptor();
  ::unlink(path_.c_str());
}

absl::StatusOr<bool> UnsentReader::Next(const std::function<void(Message)>& use) {
  ASSIGN_OR_RETURN(const std::string part, ReadPartOfOthers(path_, position_, kPartBytes));
  if (part.empty() || position_ >= kMostUnsentBytes) return false;
  // An incomplete line is left for the next part. Without any line break, the whole part is not a
  // line.
  const size_t line_break = part.rfind('\n');
  const size_t taken = line_break == part.npos ? part.size() : line_break + 1;
  const LostLines lost = lines_.Read(absl::string_view(part).substr(0, taken), use);
  if (lost.damaged + lost.missing > 0) {
    LogError("unsent_lines_lost", {{"file", path_},
                                   {"damaged", lost.damaged},
                                   {"missing", lost.missing},
                                   {"from_byte", position_},
                                   {"to_byte", position_ + taken}});
  }
  lost_.damaged += lost.damaged;
  lost_.missing += lost.missing;
  position_ += taken;
  return true;
}

}  // namespace trainyard::channel
