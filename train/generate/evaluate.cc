#include "train/generate/evaluate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/generate/choice_line.h"
#include "train/generate/lines.h"

namespace trainyard {
namespace {

absl::Status ForEachObject(const std::string& path,
                           const std::function<absl::Status(const nlohmann::json&)>& use) {
  return ForEachLine(path, [&](absl::string_view line, int64_t) -> absl::Status {
    ASSIGN_OR_RETURN(const nlohmann::json object, ParseUniqueJson(line));
    return use(object);
  });
}

// Adds a document. Each window begins with the token that the window before has predicted last.
absl::Status Score(InferenceModel& model, const std::string& text, TextScore& score) {
  std::vector<int32_t> ids = model.tokenizer().prefix();
  RETURN_IF_ERROR(model.tokenizer().NewEncoder()->Encode(text, ids));
  for (size_t begin = 0; begin + 1 < ids.size(); begin += size_t(model.window())) {
    const size_t size = std::min(size_t(model.window()), ids.size() - 1 - begin);
    model.Run(std::span(ids).subspan(begin, size));
    for (size_t i = 0; i < size; ++i) score.nats += model.Surprise(i, ids[begin + i + 1]);
    score.tokens += int64_t(size);
  }
  score.bytes += int64_t(text.size());
  if (model.tokenizer().prefix().empty() && !ids.empty()) {  // The first token is not counted.
    ASSIGN_OR_RETURN(const std::string first,
                     model.tokenizer().Decode(std::span(ids).first(1), Specials::kKeep));
    score.bytes -= int64_t(std::min(first.size(), text.size()));
  }
  ++score.documents;
  return absl::OkStatus();
}

// The log-probability of the tokens by which `whole` is longer than a text of `known` tokens.
absl::StatusOr<double> LogProbability(InferenceModel& model, const std::vector<int32_t>& whole,
                                      size_t known, bool& cut) {
  if (known == 0 || known >= whole.size()) {
    return absl::InvalidArgumentError(
        known == 0 ? "wanted a question of at least one token, found none"
                   : "wanted an answer with a token of its own, found one without");
  }
  const size_t window = size_t(model.window()), answer = whole.size() - known;
  if (answer > window) {
    return absl::InvalidArgumentError(absl::StrCat("wanted answers of at most ", window,
                                                   " tokens, the model's window, found ", answer));
  }
  const size_t seen = std::min(window, whole.size() - 1), begin = whole.size() - 1 - seen;
  cut = cut || begin > 0;
  model.Run(std::span(whole).subspan(begin, seen));
  double sum = 0;
  for (size_t i = known; i < whole.size(); ++i) sum -= model.Surprise(i - 1 - begin, whole[i]);
  return sum;
}

size_t Largest(const std::vector<double>& values) {
  return size_t(std::max_element(values.begin(), values.end()) - values.begin());
}

absl::Status Score(InferenceModel& model, const ChoiceQuestion& question, ChoiceScore& score) {
  const std::vector<int32_t> prefix = model.tokenizer().prefix();
  const std::unique_ptr<Encoder> encoder = model.tokenizer().NewEncoder();
  std::vector<int32_t> asked = prefix;
  RETURN_IF_ERROR(encoder->Encode(question.question, asked));
  std::vector<double> sums, by_length;
  bool cut = false;
  for (const std::string& choice : question.choices) {
    std::vector<int32_t> whole = prefix;
    RETURN_IF_ERROR(encoder->Encode(question.question + choice, whole));
    ASSIGN_OR_RETURN(const double sum, LogProbability(model, whole, asked.size(), cut));
    sums.push_back(sum);
    by_length.push_back(sum / double(choice.size()));
  }
  ++score.questions;
  score.right += Largest(sums) == question.answer;
  score.right_by_length += Largest(by_length) == question.answer;
  score.cut += cut;
  return absl::OkStatus();
}

}  // namespace

double TextScore::perplexity() const { return std::exp(loss()); }

double TextScore::bits_per_byte() const { return nats / std::numbers::ln2 / double(bytes); }

absl::StatusOr<TextScore> ScoreText(InferenceModel& model, const std::string& path,
                                    const std::string& field) {
  TextScore score;
  if (absl::EndsWith(path, ".jsonl")) {
    RETURN_IF_ERROR(ForEachObject(path, [&](const nlohmann::json& line) -> absl::Status {
      if (line.is_object() && line.contains(field) && line[field].is_string()) {
        return Score(model, line[field].get<std::string>(), score);
      }
      return absl::InvalidArgumentError(
          absl::StrCat("wanted an object with a text in the field ", field, ", found none"));
    }));
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    if (const absl::Status scored = Score(model, text, score); !scored.ok()) {
      return At(path, scored);
    }
  }
  if (score.tokens > 0) return score;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": wanted a document of two tokens or more, found none"));
}

absl::StatusOr<ChoiceScore> ScoreChoices(InferenceModel& model, const std::string& path) {
  ChoiceScore score;
  RETURN_IF_ERROR(ForEachLine(path, [&](absl::string_view line, int64_t) -> absl::Status {
    ASSIGN_OR_RETURN(const ChoiceQuestion question, ReadChoiceLine(line));
    return Score(model, question, score);
  }));
  if (score.questions > 0) return score;
  return absl::InvalidArgumentError(absl::StrCat(path, ": wanted questions, found none"));
}

}  // namespace trainyard
