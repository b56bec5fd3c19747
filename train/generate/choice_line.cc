#include "train/generate/choice_line.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace trainyard {

static void VisitFields(auto& v, ChoiceQuestion& q) {
  v("question", q.question), v("choices", q.choices), v("answer", q.answer);
}

absl::StatusOr<ChoiceQuestion> ReadChoiceLine(absl::string_view line) {
  ASSIGN_OR_RETURN(const nlohmann::json object, ParseUniqueJson(line));
  ChoiceQuestion question;
  RETURN_IF_ERROR(ReadFields(object, question));
  if (question.choices.size() >= 2 && question.answer < question.choices.size()) return question;
  return absl::InvalidArgumentError(
      absl::StrCat("wanted two choices or more, and an answer that counts them from 0; found ",
                   question.choices.size(), " choices and answer ", question.answer));
}

}  // namespace trainyard
