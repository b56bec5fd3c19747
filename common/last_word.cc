#include "common/last_word.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// A busy daemon on a busy machine is healthy.
constexpr absl::Duration kGrace = absl::Seconds(10);

std::string PathIn(const std::string& state_directory) { return state_directory + "/last_word"; }

absl::StatusOr<LastWord> Parse(const std::string& path, const std::string& text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  double at = 0, beat = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &at) || !absl::SimpleAtod(words[1], &beat)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": wanted two numbers of seconds"));
  }
  return LastWord{.at = absl::Seconds(at), .beat = absl::Seconds(beat)};
}

}  // namespace

absl::Status WriteLastWord(const std::string& state_directory, const LastWord& word) {
  const std::string path = PathIn(state_directory), temporary = path + ".tmp";
  const std::string text = absl::StrFormat("%.3f %.3f\n", absl::ToDoubleSeconds(word.at),
                                           absl::ToDoubleSeconds(word.beat));
  const FileDescriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoStatus(errno, "open", temporary);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written < 0) return ErrnoStatus(errno, "write", temporary);
  if (written != ssize_t(text.size())) return ErrnoStatus(ENOSPC, "write", temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "replace", path);
  return absl::OkStatus();
}

absl::Status RemoveLastWord(const std::string& state_directory) {
  const std::string path = PathIn(state_directory);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove", path);
}

absl::Status CheckLastWord(const std::string& state_directory, const Clock& clock) {
  if (!Exists(state_directory + "/worker_id")) {
    return absl::NotFoundError(absl::StrCat(
        state_directory, " is not the state directory of a worker: no worker_id in it"));
  }
  const std::string path = PathIn(state_directory);
  if (!Exists(path)) {
    return absl::FailedPreconditionError(
        "the worker has not been registered since it started; its log says why");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 4096));
  ASSIGN_OR_RETURN(const LastWord word, Parse(path, text));
  const absl::Duration ago = clock.Monotonic() - word.at;
  // A reading from before a reboot may be in the future.
  if (ago >= absl::ZeroDuration() && ago <= 3 * word.beat + kGrace) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the worker spoke to its controller ",
                   ago < absl::ZeroDuration()
                       ? "before this machine started"
                       : absl::FormatDuration(absl::Floor(ago, absl::Seconds(1))) + " ago",
                   ", and speaks every ", absl::FormatDuration(word.beat),
                   " while it is registered; its log says why"));
}

}  // namespace trainyard
