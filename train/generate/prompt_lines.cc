#include "train/generate/prompt_lines.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/chat/json_line.h"
#include "train/generate/lines.h"

namespace trainyard {
namespace {

// Whether the line has nothing but a text to go on with.
bool IsText(const nlohmann::json& object) {
  for (const char* const field : {"messages", "conversations", "completion", "chosen"}) {
    if (object.contains(field)) return false;
  }
  return object.contains("prompt") && object["prompt"].is_string();
}

}  // namespace

absl::StatusOr<std::vector<PromptLine>> ReadPromptLines(const std::string& path, PromptMeans means,
                                                        const std::vector<std::string>& added) {
  std::vector<PromptLine> lines;
  RETURN_IF_ERROR(ForEachLine(path, [&](absl::string_view text, int64_t number) -> absl::Status {
    PromptLine line = {.object = {}, .place = absl::StrCat(path, ":", number)};
    ASSIGN_OR_RETURN(line.object, ReadJsonLine(text));
    if (means == PromptMeans::kText && IsText(line.object)) {
      line.text = line.object["prompt"].get<std::string>();
    } else {
      ASSIGN_OR_RETURN(line.messages, ReadChatQuestion(text));
    }
    for (const std::string& field : added) {
      if (!line.object.contains(field)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": wanted no such field, found it; it is added"));
    }
    lines.push_back(std::move(line));
    return absl::OkStatus();
  }));
  return lines;
}

}  // namespace trainyard
