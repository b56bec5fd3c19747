#include "cli/spec_file.h"

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::cli {

absl::StatusOr<SpecText> ReadSpecText(const std::string& path) {
  const std::string file = path == "-" ? "/dev/stdin" : path;
  absl::StatusOr<std::string> text = ReadFile(file, 1 << 20);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), "; 'trainyard recipes' lists specs to start with"));
  }
  if (!text.ok()) return text.status();
  return SpecText{path == "-" ? "standard input" : path, *std::move(text)};
}

}  // namespace trainyard::cli
