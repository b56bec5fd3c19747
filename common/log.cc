#include "common/log.h"

#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace trainyard {
namespace {

// Other characters are escaped, because a terminal may obey them.
bool StandsAsItIs(char c) { return absl::ascii_isgraph(c) && c != '"' && c != '='; }

void Write(absl::string_view level, absl::string_view event,
           std::initializer_list<LogField> fields) {
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   level, " ", event);
  for (const LogField& field : fields) {
    const bool quote = field.value.empty() || !absl::c_all_of(field.value, StandsAsItIs);
    absl::StrAppend(&line, " ", field.key, "=",
                    quote ? absl::StrCat("\"", absl::CEscape(field.value), "\"") : field.value);
  }
  line += '\n';
  // One write, so that lines of several threads and processes do not mix. A full disk must not end
  // the program.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void LogInfo(absl::string_view event, std::initializer_list<LogField> fields) {
  Write("info", event, fields);
}
void LogWarning(absl::string_view event, std::initializer_list<LogField> fields) {
  Write("warning", event, fields);
}
void LogError(absl::string_view event, std::initializer_list<LogField> fields) {
  Write("error", event, fields);
}

}  // namespace trainyard
