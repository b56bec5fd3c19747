// The lines of --prompts and of --choices. The first byte says what a prompt means, and the rest is
// the file.

#include <string>

#include "common/check.h"
#include "common/json.h"
#include "tests/fuzz/input.h"
#include "train/generate/choice_line.h"
#include "train/generate/prompt_lines.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const auto means = (input.Byte() & 1) != 0 ? PromptMeans::kQuestion : PromptMeans::kText;
  const std::string file(input.Rest());
  const auto lines = ReadPromptLines(fuzz::FileOf("prompts.jsonl", file), means, {"generated"});
  if (!lines.ok()) fuzz::CheckRefusal(lines.status());
  for (const PromptLine& line : lines.value_or(std::vector<PromptLine>())) {
    CHECK(line.object.is_object() && !line.object.contains("generated"));
    CHECK(line.text.empty() || line.messages.empty()) << line.place;
    CHECK(means == PromptMeans::kText || !line.messages.empty()) << line.place;
    JsonText(line.object);  // As it is written with the answer.
  }
  const auto question = ReadChoiceLine(file);
  if (!question.ok()) {
    fuzz::CheckRefusal(question.status());
    return 0;
  }
  CHECK(question->choices.size() >= 2) << question->choices.size();
  CHECK(question->answer < question->choices.size()) << question->answer;
  return 0;
}

}  // namespace trainyard
