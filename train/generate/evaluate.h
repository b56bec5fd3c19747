// How well a trained model predicts texts, and which answers it finds likeliest.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "train/generate/inference_model.h"

namespace trainyard {

// How likely a model finds texts. Sums are over counted tokens: all tokens of each document but the
// first, which nothing precedes. If the tokenizer's template begins texts with a token, as <s>,
// every token of the document is counted.
struct TextScore {
  int64_t documents = 0;
  int64_t tokens = 0;  // Counted ones.
  int64_t bytes = 0;   // Of the counted tokens.
  double nats = 0;     // The sum of -log(probability).

  double loss() const { return nats / double(tokens); }  // A token's, as training reports it.
  double perplexity() const;                             // e to the power of the loss.
  // Does not depend on the tokenizer, so that models with different ones can be compared.
  double bits_per_byte() const;
};

// Scores a file. A name that ends in .jsonl has an object of JSON in each line, whose field `field`
// is a document. Any other file is one document. A document that is longer than the model's window
// is cut into windows that follow each other, as training cuts a text. Errors name the file and the
// line: those of ReadFile; DATA_LOSS: a line is no JSON; INVALID_ARGUMENT: a line has no such text,
// or no token can be counted.
absl::StatusOr<TextScore> ScoreText(InferenceModel& model, const std::string& path,
                                    const std::string& field);

// Multiple choice by log-probabilities, as the EleutherAI language model evaluation harness does
// it: an answer's score is the sum of the log-probabilities of its tokens after the question.
struct ChoiceScore {
  int64_t questions = 0;
  int64_t right = 0;            // The right answer has the highest score.
  int64_t right_by_length = 0;  // It has the highest score divided by its number of bytes.
  int64_t cut = 0;              // Questions of which the model has not seen the beginning.
};

// Scores a file with a line of JSON for each question: {"question": TEXT, "choices": [TEXT, ...],
// "answer": INDEX}. Texts are joined as they are, so a space between question and answer stands in
// the file. Errors name the file and the line: those of ReadFile; DATA_LOSS: a line is no JSON;
// INVALID_ARGUMENT: a field is missing or wrong, an answer has no token of its own or is longer
// than the window, or the file has no question.
absl::StatusOr<ChoiceScore> ScoreChoices(InferenceModel& model, const std::string& path);

}  // namespace trainyard
