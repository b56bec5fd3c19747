// Proves the way from a Hugging Face directory to a fine-tuned one through the real binaries: a job
// on chats, an answer, an export that can be imported again, an adapter on top. And that chats
// which cannot be trained on are refused before anything is trained, with file and line.

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/e2e/service.h"
#include "tests/train/chat/golden_chat.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string Chats(int count, const std::string& answer = "a number") {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, R"({"prompt": "What is )", i, R"(?", "completion": ")", answer,
                    "\"}\n");
  }
  return lines;
}

constexpr char kModel[] =
    "architecture: {family: qwen3, layers: 2, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, "
    "head_dim: 8, vocab: 2048, max_seq: 128, norm_eps: 1e-6, rope_base: 10000, tied: true}";

class ChatService : public ::testing::Test {
 protected:
  ChatService() : service_({.workers = 1, .devices_per_worker = 2}) {
    // A directory of Hugging Face, with a tokenizer.
    const std::string id = service_.Submit({.name = "base",
                                            .steps = 1,
                                            .checkpoint_every = 1,
                                            .directory = "runs/base",
                                            .model = kModel});
    EXPECT_EQ(service_.WaitForEnd(id), "SUCCEEDED");
    const Finished exported = service_.Trainyard({"export", "runs/base", "--to", "base"});
    EXPECT_EQ(exported.exit_code, 0) << exported;
    EXPECT_TRUE(MakeDirectories(service_.directory() + "/base").ok());
    service_.Write("base/tokenizer.json", OpenGoldenChat("chatml").tokenizer_json);
    service_.Write("mine.jsonl", Chats(40));
  }

  Finished Submit(const std::vector<std::string>& sets, const std::string& recipe = "sft") {
    std::vector<std::string> words = {
        "submit",
        absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/finetune/", recipe, ".yaml"),
        "--watch"};
    for (const char* set :
         {"model.import=base", "data.chat.path=mine.jsonl", "data.chat.format=chatml",
          "precision=F32", "batch={global: 4, micro: 2, sequence: 96}", "devices=2", "steps=40",
          "optimizer.adamw.learning_rate=1e-2", "validation.every_steps=20"}) {
      words.insert(words.end(), {"--set", set});
    }
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return service_.Trainyard(words);
  }

  // What the model wrote after the last step is shown wherever steps are.
  void ExpectShown(const std::string& id) {
    EXPECT_THAT(service_.Trainyard({"get", id}).output,
                HasSubstr("step 40 wrote, after: What is 77?\na number\n"));
    const Finished steps = service_.Trainyard({"steps", id, "--after", "39", "-o", "jsonl"});
    EXPECT_THAT(steps.output,
                HasSubstr(R"("generated":[{"prompt":"What is 77?","text":"a number"},)"));
    const Finished board = service_.Trainyard({"export-steps", id, "--tensorboard", "board"});
    ASSERT_EQ(board.exit_code, 0) << board;
    const auto file = ReadFile(
        absl::StrCat(service_.directory(), "/", board.output.substr(0, board.output.find('\n'))));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(*file, AllOf(HasSubstr("generated/1"), HasSubstr("What is 77?a number\n```\n")));
  }

  Service service_;
};

TEST_F(ChatService, TeachesAModelToAnswer) {
  const Finished trained =
      Submit({R"(validation.generate={prompts: ["What is 77?", "Who?"], temperature: 0})"});
  ASSERT_EQ(trained.exit_code, 0) << trained;
  EXPECT_THAT(HttpGet(service_.metrics_url()), HasSubstr("trainyard_padding_ratio{"));
  ExpectShown(trained.output.substr(0, trained.output.find_first_of(" \n")));
  const Finished answer =
      service_.Trainyard({"generate", "runs/sft", "--chat", "What is 77?", "--temperature", "0"});
  EXPECT_EQ(answer.output, "a number\n") << answer;
  service_.Write("ask.jsonl", "{\"prompt\": \"What is 77?\", \"completion\": \"a number\"}\n");
  const Finished answers =
      service_.Trainyard({"generate", "runs/sft", "--chats", "ask.jsonl", "--temperature", "0"});
  EXPECT_EQ(answers.output,
            "{\"completion\":\"a number\",\"generated\":\"a number\",\"prompt\":\"What is 77?\"}\n")
      << answers;
  const Finished score = service_.Trainyard({"evaluate", "runs/sft", "--chats", "ask.jsonl"});
  EXPECT_THAT(score.output, HasSubstr("\"exact_answers\": 1.0")) << score;
  const Finished exported = service_.Trainyard({"export", "runs/sft", "--to", "out"});
  ASSERT_EQ(exported.exit_code, 0) << exported;
  EXPECT_TRUE(Exists(service_.directory() + "/out/tokenizer.json"));
  const Finished imported = service_.Trainyard({"import", "out", "--to", "again"});
  ASSERT_EQ(imported.exit_code, 0) << imported;
  const Finished same = service_.Trainyard(
      {"generate", "again", "--chat", "What is 77?", "--temperature", "0", "--format", "chatml"});
  EXPECT_EQ(same.output, answer.output) << same;

  // An adapter gives another answer, and the model that it lies on stays as it was.
  service_.Write("mine.jsonl", Chats(40, "the"));
  const Finished adapted = Submit({"model.import=out", "steps=80"}, "lora");
  ASSERT_EQ(adapted.exit_code, 0) << adapted;
  const Finished other =
      service_.Trainyard({"generate", "runs/lora", "--chat", "What is 77?", "--temperature", "0"});
  EXPECT_EQ(other.output, "the\n") << other;
  const Finished adapter = service_.Trainyard({"export", "runs/lora", "--to", "adapter"});
  EXPECT_EQ(adapter.exit_code, 0) << adapter;
  EXPECT_THAT(adapter.errors, HasSubstr("the adapter's base is out"));
  const auto config = ReadFile(service_.directory() + "/adapter/adapter_config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(*config, HasSubstr("\"base_model_name_or_path\": \"out\""));
  EXPECT_TRUE(Exists(service_.directory() + "/adapter/adapter_model.safetensors"));

  // The run goes on without the directory that it was imported from.
  std::filesystem::rename(service_.directory() + "/out", service_.directory() + "/moved");
  const Finished later = service_.Trainyard(
      {"submit", "--continue", "runs/lora", "--set", "steps=84", "--watch", "--quiet"});
  EXPECT_EQ(later.exit_code, 0) << later;
}

// Learns to prefer the rarer of two answers, on two ranks, and to say it.
TEST_F(ChatService, TeachesAModelToPreferAnAnswer) {
  std::string pairs;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&pairs, R"({"prompt": "What is )", i,
                    R"(?", "chosen": "the", "rejected": "a number"})", "\n");
  }
  service_.Write("mine.jsonl", pairs);
  const Finished trained = Submit({"optimizer.adamw.learning_rate=3e-3"}, "dpo");
  ASSERT_EQ(trained.exit_code, 0) << trained;
  const std::string metrics = HttpGet(service_.metrics_url());
  for (const char* metric :
       {"trainyard_reward_margin{", "trainyard_chosen_reward{", "trainyard_rejected_reward{"}) {
    EXPECT_THAT(metrics, HasSubstr(metric));
  }
  EXPECT_THAT(metrics, ContainsRegex("trainyard_reward_accuracy_ratio[{].*[}] 1\n"));
  const std::string id = trained.output.substr(0, trained.output.find_first_of(" \n"));
  const Finished steps = service_.Trainyard({"steps", id, "-o", "jsonl"});
  EXPECT_THAT(steps.output, HasSubstr("reward_margin")) << steps;
  // The run goes on by the reference that it has kept.
  const Finished later = service_.Trainyard(
      {"submit", "--continue", "runs/dpo", "--set", "steps=44", "--watch", "--quiet"});
  EXPECT_EQ(later.exit_code, 0) << later;
  // A file of chats.
  service_.Write("mine.jsonl", Chats(3));
  const Finished broken = Submit({"checkpoint.directory=runs/broken"}, "dpo");
  EXPECT_THAT(broken.output + broken.errors,
              AllOf(HasSubstr("data.chat"), HasSubstr("mine.jsonl:1: chosen: wanted a text")));
}

TEST_F(ChatService, RefusesWhatCannotBeTrainedOn) {
  service_.Write("mine.jsonl", Chats(3) + "{\"messages\": []}\n");
  const Finished broken = Submit({});
  EXPECT_NE(broken.exit_code, 0);
  EXPECT_THAT(broken.output + broken.errors,
              AllOf(HasSubstr("data.chat"), HasSubstr("mine.jsonl:4: ")));
  const Finished format = Submit({"data.chat.format=chatlm"});
  EXPECT_THAT(format.errors, AllOf(HasSubstr("data.chat.format"), HasSubstr("nearest chatml")));
  const Finished date = Submit({"data.chat.date=2026-01-01"});
  EXPECT_THAT(date.errors, AllOf(HasSubstr("data.chat.date"), HasSubstr("wanted no date")));
  service_.Write("mine.jsonl", Chats(40));
  const Finished unnamed = Submit({"data.chat.format="});
  EXPECT_THAT(unnamed.output + unnamed.errors, HasSubstr("wanted a chat_template beside"));
  const Finished shorter = Submit({"batch.sequence=8", "data.chat.too_long=REFUSE"});
  EXPECT_THAT(shorter.output + shorter.errors, HasSubstr("CUT or DROP, or batch.sequence"));
}

}  // namespace
}  // namespace trainyard::testing
