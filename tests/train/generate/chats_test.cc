// Proves that answers of a file have the loss that training reports, that an answer is exact where
// the model would write it, and that each line's question is answered as alone. What has no
// question or answer is refused with its line.
//
// Bugs it must catch: a question's tokens in the loss, and an answer that depends on the lines
// before.

#include "train/generate/chats.h"

#include <nlohmann/json.hpp>

#include "common/status_macros.h"
#include "gmock/gmock.h"
#include "tests/train/generate/chat_model.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class Chats : public ChatModel {
 protected:
  static void SetUpTestSuite() { job_ = new JobConfig(Job("chats", "chatml", &validation_loss_)); }
  static void TearDownTestSuite() { delete job_; }

  static std::string File(const std::string& lines) {
    const std::string path = FreshDirectory("chats-file") + ".jsonl";
    WriteBytes(path, lines);
    return path;
  }
  static absl::StatusOr<AnswerScore> Scored(const std::string& lines, int64_t window = 0) {
    InferenceModel model =
        *InferenceModel::Load({.checkpoint = job_->checkpoint->directory, .window = window},
                              InferenceModel::Use::kWhole, CpuBackend());
    return ScoreChats(model, File(lines), {});
  }
  // The field `generated` of each line.
  static absl::StatusOr<std::vector<std::string>> Answers(const std::string& lines,
                                                          int64_t window = 0) {
    std::vector<std::string> answers;
    GenerateOptions options = {
        .model = {.checkpoint = job_->checkpoint->directory, .window = window}, .tokens = 50};
    options.sampling.temperature = 1;
    RETURN_IF_ERROR(AnswerChats(options, File(lines), CpuBackend(), [&](const std::string& line) {
      answers.push_back(nlohmann::json::parse(line).at("generated"));
    }));
    return answers;
  }

  static inline JobConfig* job_ = nullptr;
  static inline double validation_loss_ = 0;
};

TEST_F(Chats, HeldOutLinesHaveTheLossOfValidation) {
  const auto score = Scored(Line(18) + "\n" + Line(19));
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->conversations, 2);
  EXPECT_EQ(score->answers, 2);
  EXPECT_EQ(score->exact, 2);
  EXPECT_NEAR(score->loss(), validation_loss_, 1e-6 * validation_loss_);
}

TEST_F(Chats, AnAnswerIsExactWhereTheModelWouldWriteIt) {
  const std::string line = R"({"messages": [{"role": "user", "content": "What is 3?"}, )"
                           R"({"role": "assistant", "content": "a nice number"}, )"
                           R"({"role": "user", "content": "What is 7?"}, )"
                           R"({"role": "assistant", "content": "a number"}]})";
  const auto score = Scored(line);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->conversations, 1);
  EXPECT_EQ(score->answers, 2);
  EXPECT_EQ(score->exact, 1);
}

TEST_F(Chats, EachLineIsAnsweredAsAlone) {
  const std::string alone = R"({"prompt": "What is 31?"})";
  const std::string turns =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "What?"}]})";
  const auto one = Answers(alone), other = Answers(turns);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  const auto all = Answers(absl::StrCat(Line(3), turns, "\r\n\n", alone));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, ::testing::ElementsAre(Answers(Line(3))->at(0), other->at(0), one->at(0)));
  EXPECT_EQ(Answers(R"({"prompt": "What is 31?", "completion": "wrong"})"), one);
}

TEST_F(Chats, WhatCannotBeAskedOrScoredIsRefusedWithItsLine) {
  EXPECT_THAT(
      std::string(Answers(Line(1) + R"({"generated": "x", "prompt": "y"})").status().message()),
      HasSubstr(".jsonl:2: generated: wanted no such field"));
  EXPECT_THAT(
      std::string(Answers(R"({"segments": [{"text": "a", "train": true}]})").status().message()),
      HasSubstr("found segments"));
  EXPECT_THAT(
      std::string(
          Answers(R"({"messages": [{"role": "system", "content": "a"}]})").status().message()),
      HasSubstr(":1: wanted a conversation with a question"));
  EXPECT_THAT(std::string(Scored(Line(1) + Line(2), 5).status().message()),
              HasSubstr(".jsonl:1: wanted a conversation of at most 6 tokens"));
  EXPECT_THAT(std::string(Scored("\n").status().message()), HasSubstr("found none"));
  // A token that follows nothing cannot be scored.
  EXPECT_THAT(
      std::string(Scored(R"({"segments": [{"text": "a", "train": true}]})").status().message()),
      HasSubstr("found none"));
  EXPECT_THAT(std::string(Answers(Line(1), 5).status().message()),
              HasSubstr(".jsonl:1: wanted a question of at most 5 tokens, the window; found "));
  EXPECT_THAT(std::string(Scored(R"({"prompt": "y"})").status().message()), HasSubstr(":1: "));
}

}  // namespace
}  // namespace trainyard::testing
