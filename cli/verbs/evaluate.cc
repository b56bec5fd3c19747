// trainyard evaluate: how well a trained model predicts texts and answers questions.

#include "train/generate/evaluate.h"

#include "absl/strings/str_cat.h"
#include "cli/become_trainer.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"
#include "models/arch/config.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {
namespace {

absl::Status RunEvaluate(const Context& context) {
  const Arguments& arguments = context.arguments;
  if (!arguments.Has("--data") && !arguments.Has("--choices") && !arguments.Has("--chats")) {
    return UsageError("wanted --data FILE, --chats FILE or --choices FILE, found none");
  }
  for (const char* const option : {"--data", "--chats", "--choices"}) {
    if (!arguments.Has(option) || !arguments.Text(option).empty()) continue;
    return UsageError(absl::StrCat(option, ": wanted a file, found an empty text"));
  }
  for (const char* const option : {"--format", "--date"}) {
    if (!arguments.Has(option) || arguments.Has("--chats")) continue;
    return UsageError(absl::StrCat(option, ": wanted --chats beside it, found none"));
  }
  if (arguments.Given("--field") && !arguments.Text("--data").ends_with(".jsonl")) {
    return UsageError("--field: wanted --data with a .jsonl file, which has fields");
  }
  RETURN_IF_ERROR(FindCheckpoints(arguments.Text("CHECKPOINT")).status());
  return BecomeTrainer(context, {"--evaluate", arguments.Text("CHECKPOINT")},
                       {"--data", "--field", "--chats", "--format", "--date", "--choices",
                        "--window", "--device", "--tensor"});
}

}  // namespace

Verb EvaluateVerb() {
  return {
      .name = "evaluate",
      .summary = "measures how well a trained model predicts texts and answers questions",
      .positionals = {{"CHECKPOINT",
                       "a checkpoint, or a job's checkpoint.directory: its newest good one; "
                       "DIR/best: the best one"}},
      .options = {TextOption("--data", "FILE",
                             "a text, or .jsonl with a text in each line: prints loss, perplexity "
                             "and bits a byte"),
                  TextOption("--field", "NAME", "of a .jsonl file: the field that has the text",
                             "text"),
                  TextOption("--chats", "FILE",
                             ".jsonl of conversations (docs/chat.md): prints the loss of their "
                             "answers, and which part of them the model would write exactly"),
                  TextOption("--format", "NAME",
                             "of chats: the format, if neither the run nor the model's chat "
                             "template says which"),
                  TextOption("--date", "DATE", "of chats: the date that some formats write"),
                  TextOption("--choices", "FILE",
                             ".jsonl with a question, choices and answer (from 0) in each line: "
                             "prints how often the right choice is the likeliest"),
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
      .examples = {"trainyard evaluate runs/tiny --data held-out.txt",
                   "trainyard evaluate runs/lora --chats held-out.jsonl",
                   "trainyard evaluate runs/tiny --choices arc-easy.jsonl --window 512"},
      .run = RunEvaluate};
}

}  // namespace trainyard::cli
