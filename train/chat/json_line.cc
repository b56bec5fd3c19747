#include "train/chat/json_line.h"

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard {

absl::StatusOr<nlohmann::json> ReadJsonLine(absl::string_view line) {
  nlohmann::json json = ParseJson(line);
  if (json.is_discarded()) {
    // This parser is slower, and says what it found.
    ASSIGN_OR_RETURN(json, ParsePythonJson(line));
  }
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat("wanted an object of JSON, found one of the type ", json.type_name()));
}

}  // namespace trainyard
