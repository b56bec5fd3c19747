// A small model that was trained on chats.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "gtest/gtest.h"
#include "tests/models/hf/files.h"
#include "tests/train/chat/golden_chat.h"
#include "tests/train/step/run_job.h"
#include "train/chat/chat_lines.h"
#include "train/data/chat.h"
#include "train/generate/generate.h"

namespace trainyard::testing {

// A model that has learnt to answer any question in one way.
class ChatModel : public ::testing::Test {
 protected:
  // Of the file of its run.
  static std::string Line(int i) {
    return absl::StrCat(R"({"prompt": "What is )", i, R"(?", "completion": "a number"})", "\n");
  }
  // Trains it. The last two of its lines are held out.
  static JobConfig Job(const std::string& name, const std::string& format,
                       double* validation_loss = nullptr) {
    const std::string directory = FreshDirectory(name);
    CHECK(MakeDirectories(directory).ok());
    WriteBytes(directory + "/tokenizer.json", OpenGoldenChat("chatml").tokenizer_json);
    std::string lines;
    for (int i = 0; i < 20; ++i) {
      lines += Line(i);
    }
    WriteBytes(directory + "/chats.jsonl", lines);
    JobConfig job = TinyJob(directory + "/run");
    job.model.architecture->fields["vocab"] = int64_t{2048};
    job.model.architecture->fields["max_seq"] = int64_t{96};
    job.batch = {.global = 2, .micro = 2, .sequence = 96};
    job.steps = 40;
    job.optimizer.clip_norm = 0;
    job.data = ChatData{.path = directory + "/chats.jsonl",
                        .tokenizer = directory + "/tokenizer.json",
                        .format = format,
                        .validation_fraction = 0.1};
    job.validation = ValidationConfig{.every_steps = job.steps};
    const RankRun run = RunJob(job, {.open_lines = OpenChatLines})[0];
    CHECK(run.status.ok()) << run.status;
    if (validation_loss != nullptr) *validation_loss = run.records.back().validation_loss.value();
    return job;
  }

  static absl::StatusOr<std::string> Answer(const JobConfig& job, GenerateOptions options) {
    options.model.checkpoint = job.checkpoint->directory;
    options.sampling.temperature = 0;
    options.tokens = 50;
    std::string text;
    const absl::Status status = Generate(
        options, CpuBackend(), [&](absl::string_view more) { absl::StrAppend(&text, more); });
    if (!status.ok()) return status;
    return text;
  }
};

}  // namespace trainyard::testing
