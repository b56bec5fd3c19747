#include "train/generate/lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {

absl::Status At(absl::string_view place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

absl::Status ForEachLine(const std::string& path,
                         const std::function<absl::Status(absl::string_view, int64_t)>& use) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::ConsumeSuffix(&line, "\r");
    const absl::Status used = use(line, number);
    if (!used.ok()) return At(absl::StrCat(path, ":", number), used);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
