// Proves that a text's loss is the one that training reports for the same tokens, whatever the
// windows, and that a question's choices are ranked by the probabilities of their own tokens. What
// cannot be scored is refused with its line.
//
// Bugs it must catch: a token that is counted twice or never at the border of two windows, and a
// question's own tokens in the score of its choices.

#include "train/generate/evaluate.h"

#include <cmath>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/models/hf/files.h"
#include "tests/train/step/run_job.h"
#include "train/data/text.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class Evaluate : public ::testing::Test {
 protected:
  // A model of bytes that has seen 600 of them, and is validated on the last third.
  Evaluate() {
    for (int i = 0; i < 600; ++i) text_ += char('a' + (i * i + i / 7) % 11);
    JobConfig job = TinyJob(directory_);
    job.model.architecture->fields["vocab"] = int64_t{256};
    WriteBytes(directory_ + "-text", text_);
    job.data = TextData{.path = directory_ + "-text", .validation_fraction = 1. / 3};
    job.validation = ValidationConfig{.every_steps = 2, .batches = 2};
    job.batch.global = 8;
    job.steps = 2;
    const std::vector<RankRun> runs = RunJob(job);
    EXPECT_TRUE(runs[0].status.ok()) << runs[0].status;
    validation_loss_ = runs[0].records.back().validation_loss.value_or(0);
  }

  InferenceModel Model(int64_t window = 0) const {
    return *InferenceModel::Load({.checkpoint = directory_, .window = window},
                                 InferenceModel::Use::kWhole, CpuBackend());
  }
  std::string File(const std::string& name, const std::string& text) const {
    WriteBytes(directory_ + "-" + name, text);
    return directory_ + "-" + name;
  }

  const std::string directory_ = FreshDirectory("evaluate");
  std::string text_;
  double validation_loss_ = 0;
};

TEST_F(Evaluate, ATextHasTheLossOfTraining) {
  InferenceModel model = Model();
  ASSERT_EQ(model.window(), 12);
  // Validation has sixteen windows of twelve tokens, from the first held-out byte on.
  const auto score = ScoreText(model, File("held-out", text_.substr(400, 16 * 12 + 1)), "text");
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->tokens, 16 * 12);
  EXPECT_NEAR(score->loss(), validation_loss_, 1e-6);
  EXPECT_NEAR(score->perplexity(), std::exp(validation_loss_), 1e-4);
  EXPECT_NEAR(score->bits_per_byte(), score->nats / std::log(2) / (16 * 12), 1e-9);
}

TEST_F(Evaluate, EveryTokenCountsOnceWhateverTheWindow) {
  InferenceModel one = Model(1), all = Model(16);
  const auto by_one = ScoreText(one, File("short", "abcab"), "text");
  const auto whole = ScoreText(all, File("short", "abcab"), "text");
  ASSERT_TRUE(by_one.ok() && whole.ok());
  EXPECT_EQ(by_one->tokens, 4);
  EXPECT_EQ(whole->tokens, 4);
  // With a window of one token, a token is predicted from the one before alone.
  double pairs = 0;
  for (const char* pair : {"ab", "bc", "ca", "ab"}) {
    pairs += ScoreText(all, File("pair", pair), "text")->nats;
  }
  EXPECT_NEAR(by_one->nats, pairs, 1e-9);
  EXPECT_GT(std::abs(whole->nats - pairs), 1e-6);
}

TEST_F(Evaluate, LinesOfJsonAreDocumentsOfTheirOwn) {
  InferenceModel model = Model();
  const double apart = ScoreText(model, File("one", "abca"), "text")->nats +
                       ScoreText(model, File("two", "kb"), "text")->nats;
  const auto both =
      ScoreText(model, File("two.jsonl", "{\"body\": \"abca\"}\n\n{\"body\": \"kb\"}\n"), "body");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->documents, 2);
  EXPECT_EQ(both->tokens, 4);
  EXPECT_EQ(both->bytes, 4);
  EXPECT_NEAR(both->nats, apart, 1e-9);
}

// -log(probability) of the last bytes of a text.
double Tail(InferenceModel& model, const std::string& text, size_t bytes) {
  const std::vector<int32_t> ids(text.begin(), text.end());
  double nats = 0;
  model.Run(ids);
  for (size_t i = ids.size() - bytes; i < ids.size(); ++i) {
    const std::span<const float> logits = model.Logits(i - 1);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit));
    nats += std::log(sum) - double(logits[size_t(ids[i])]);
  }
  return nats;
}

TEST_F(Evaluate, ChoicesAreRankedByTheirOwnTokens) {
  InferenceModel model = Model();
  const std::string question = "abc";
  const std::vector<std::string> choices = {"k", "ab", "cdefg"};
  size_t best = 0, best_by_length = 0;
  std::vector<double> nats;
  for (const std::string& choice : choices) {
    nats.push_back(Tail(model, question + choice, choice.size()));
    const size_t i = nats.size() - 1;
    if (nats[i] < nats[best]) best = i;
    if (nats[i] / double(choice.size()) <
        nats[best_by_length] / double(choices[best_by_length].size())) {
      best_by_length = i;
    }
  }
  std::string lines;
  for (size_t answer = 0; answer < choices.size(); ++answer) {
    absl::StrAppend(&lines, "{\"question\": \"abc\", \"choices\": [\"",
                    absl::StrJoin(choices, "\", \""), "\"], \"answer\": ", answer, "}\n");
  }
  const auto all = ScoreChoices(model, File("all.jsonl", lines));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->questions, 3);
  EXPECT_EQ(all->right, 1);
  EXPECT_EQ(all->right_by_length, 1);
  EXPECT_EQ(all->cut, 0);
  const auto line = [&](size_t answer) {
    return ScoreChoices(
        model, File("one.jsonl", lines.substr(answer * lines.size() / 3, lines.size() / 3)));
  };
  EXPECT_EQ(line(best)->right, 1);
  EXPECT_EQ(line(best_by_length)->right_by_length, 1);
}

TEST_F(Evaluate, AQuestionThatIsLongerThanTheWindowLosesItsBeginning) {
  InferenceModel model = Model();
  const auto score = ScoreChoices(
      model, File("long.jsonl", R"({"question": "aaaabbbbccccdddd", "choices": ["ab", "k"],)"
                                R"( "answer": 0})"));
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->cut, 1);
}

TEST_F(Evaluate, WhatCannotBeScoredIsRefusedWithItsLine) {
  InferenceModel model = Model();
  const auto text = [&](const std::string& name, const std::string& bytes) {
    return std::string(ScoreText(model, File(name, bytes), "text").status().message());
  };
  EXPECT_THAT(text("empty", ""), HasSubstr("wanted a document of two tokens"));
  EXPECT_THAT(text("a.jsonl", "{\"text\": \"ab\"}\n{\"txt\": \"ab\"}\n"),
              HasSubstr("a.jsonl:2: wanted an object with a text in the field text"));
  EXPECT_THAT(text("b.jsonl", "\n{\"text\": \"ab\"\n"), HasSubstr("b.jsonl:2: "));
  const auto choices = [&](const std::string& line) {
    return std::string(ScoreChoices(model, File("c.jsonl", line)).status().message());
  };
  EXPECT_THAT(choices(""), HasSubstr("wanted questions, found none"));
  EXPECT_THAT(choices(R"({"question": "a", "choices": ["b", "c"]})"), HasSubstr("answer"));
  EXPECT_THAT(choices(R"({"question": "a", "choices": ["b"], "answer": 0})"),
              HasSubstr("c.jsonl:1: wanted two choices or more"));
  EXPECT_THAT(choices(R"({"question": "a", "choices": ["b", "c"], "answer": 2})"),
              HasSubstr("found 2 choices and answer 2"));
  EXPECT_THAT(choices(R"({"question": "a", "choices": ["b", ""], "answer": 0})"),
              HasSubstr("an answer with a token of its own"));
  EXPECT_THAT(choices(R"({"question": "", "choices": ["b", "c"], "answer": 0})"),
              HasSubstr("a question of at least one token"));
  EXPECT_THAT(choices(R"({"question": "a", "choices": ["b", "cccccccccccccc"], "answer": 0})"),
              HasSubstr("answers of at most 12 tokens"));
}

}  // namespace
}  // namespace trainyard::testing
