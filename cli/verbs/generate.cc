// trainyard generate: generates text with a trained model. The trainer computes the text, because
// the command line has no kernels.

#include "train/generate/generate.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/become_trainer.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {
namespace {

// Reported here as usage errors. The trainer would report failures.
absl::Status CheckSampling(const Arguments& arguments) {
  struct Limit {
    const char* option;
    double most;
  };
  for (const auto& [option, most] :
       {Limit{"--temperature", kMaxTemperature}, Limit{"--top-p", 1}, Limit{"--min-p", 1}}) {
    double value = 0;
    const std::string text = arguments.Text(option);
    if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= most)) {
      return UsageError(absl::StrCat(option, ": wanted 0 to ", most, ", found '", text, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status RunGenerate(const Context& context) {
  RETURN_IF_ERROR(CheckSampling(context.arguments));
  const std::string& chat = context.arguments.Text("--chat");
  if (chat.empty() && context.arguments.Has("--chat")) {
    return UsageError("--chat: wanted a question, found an empty text");
  }
  for (const char* const option : {"--chats", "--prompts", "--out"}) {
    if (!context.arguments.Has(option) || !context.arguments.Text(option).empty()) continue;
    return UsageError(absl::StrCat(option, ": wanted a file, found an empty text"));
  }
  const auto given = [&](const char* option) { return !context.arguments.Text(option).empty(); };
  const bool chats = given("--chats"), prompts = given("--prompts");
  const auto& texts = context.arguments.List("--prompt");
  const bool text = std::any_of(texts.begin(), texts.end(),
                                [](const std::string& prompt) { return !prompt.empty(); });
  if (int(!chat.empty()) + int(text || texts.size() > 1) + int(prompts) + int(chats) > 1) {
    return UsageError(
        "wanted at most one of --prompt, --prompts, --chat and --chats, found several");
  }
  if (!chat.empty() && given("--out")) {
    return UsageError("--out: wanted --prompt, --prompts or --chats beside it, found --chat");
  }
  if (given("--system") && chat.empty()) {
    return UsageError(chats ? "--system: wanted a message of the role system in each line of "
                              "--chats, found this option"
                            : "--system: wanted --chat beside it, found none");
  }
  for (const char* const option : {"--format", "--date"}) {
    if (!chat.empty() || chats || prompts || !given(option)) continue;
    return UsageError(absl::StrCat(
        option, ": wanted --chat, --chats or --prompts beside it, found none of them"));
  }
  const std::string& path = context.arguments.Text("CHECKPOINT");
  RETURN_IF_ERROR(FindCheckpoints(path).status());
  return BecomeTrainer(
      context, {"--generate", path},
      {"--prompt", "--prompts", "--chat", "--chats", "--system", "--format", "--date", "--batch",
       "--out", "--tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--stop", "--seed",
       "--window", "--device", "--tensor"});
}

}  // namespace

Verb GenerateVerb() {
  return {
      .name = "generate",
      .summary = "writes text with a trained model",
      .positionals = {{"CHECKPOINT",
                       "a checkpoint, or a job's checkpoint.directory: its newest good one; "
                       "DIR/best: the best one"}},
      .options = {ListOption("--prompt", "TEXT",
                             "the beginning of the text; if repeated, prints a line of JSON for "
                             "each, with the model's text in the field generated"),
                  TextOption("--prompts", "FILE",
                             ".jsonl with a prompt to go on with, or the messages of a chat to "
                             "answer (docs/command_line.md), in each line; prints lines of JSON"),
                  TextOption("--chat", "TEXT",
                             "a question, which the model answers in its format of chats "
                             "(docs/chat.md)"),
                  TextOption("--chats", "FILE",
                             ".jsonl of conversations (docs/chat.md): prints each line with the "
                             "model's answer to its last question, in the field generated"),
                  TextOption("--system", "TEXT", "for --chat: what the system says first"),
                  TextOption("--format", "NAME",
                             "of chats: the format, if neither the run nor the model's chat "
                             "template says which"),
                  TextOption("--date", "DATE", "of chats: the date that some formats write"),
                  NumberOption("--batch", "N",
                               "how many of several prompts to go on with at once; default: 16, or "
                               "what memory holds",
                               "", {1, uint64_t(InferenceModel::kMostTexts)}),
                  TextOption("--out", "FILE",
                             "writes the lines of JSON into this file once all of them are there"),
                  NumberOption("--tokens", "N",
                               "how many tokens to write; the model sees as many of the last ones "
                               "as it was trained with",
                               "200", {0, uint64_t(kMaxGeneratedTokens)}),
                  TextOption("--temperature", "T",
                             "0 always takes the likeliest token; 1 samples as trained", "0.8"),
                  NumberOption("--top-k", "K", "only the K likeliest tokens; 0: all", "0",
                               {0, uint64_t(kMostTopK)}),
                  TextOption("--top-p", "P",
                             "only the fewest tokens that together have the probability P", "1"),
                  TextOption("--min-p", "P",
                             "only tokens with at least the part P of the largest probability",
                             "0"),
                  ListOption("--stop", "TEXT", "ends before this text; may be repeated"),
                  NumberOption("--seed", "S", "the same seed writes the same text", "1"),
                  NumberOption("--window", "N",
                               "how many tokens the model sees at once; default: as in training",
                               "", {1, uint64_t(kMaxSequence)}),
                  TextOption("--device", "NAME", "cpu, cuda, or auto: a GPU if there is one",
                             "cpu"),
                  NumberOption("--tensor", "N",
                               "how many ranks of this machine hold the model together: GPUs, or "
                               "processes of a CPU",
                               "1", {1, uint64_t(kMostTensorRanks)})},
      .offers = kNothing,
      .examples =
          {"trainyard generate runs/tiny/epoch-1/step-200 --prompt 'And the LORD' --tokens 300"},
      .run = RunGenerate};
}

}  // namespace trainyard::cli
