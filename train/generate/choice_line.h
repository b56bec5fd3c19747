// A line of a file of questions with several answers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct ChoiceQuestion {
  std::string question;
  std::vector<std::string> choices;  // Two or more.
  uint64_t answer = 0;               // Of the right one; below choices.size().
};

// Reads {"question": TEXT, "choices": [TEXT, ...], "answer": INDEX}. DATA_LOSS: the line is no
// JSON. INVALID_ARGUMENT: a field is missing or wrong.
absl::StatusOr<ChoiceQuestion> ReadChoiceLine(absl::string_view line);

}  // namespace trainyard
