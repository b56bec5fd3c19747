// trainyard evaluate: how well a trained model predicts texts and answers questions.

#include "train/generate/evaluate.h"

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
  if (!arguments.Has("--data") && !arguments.Has("--choices")) {
    return UsageError("wanted --data FILE, --choices FILE or both, found neither");
  }
  if (arguments.Given("--field") && !arguments.Text("--data").ends_with(".jsonl")) {
    return UsageError("--field: wanted --data with a .jsonl file, which has fields");
  }
  RETURN_IF_ERROR(FindCheckpoints(arguments.Text("CHECKPOINT")).status());
  return BecomeTrainer(context, {"--evaluate", arguments.Text("CHECKPOINT")},
                       {"--data", "--field", "--choices", "--window"});
}

}  // namespace

Verb EvaluateVerb() {
  return {
      .name = "evaluate",
      .summary = "measures how well a trained model predicts texts and answers questions",
      .positionals = {{"CHECKPOINT",
                       "a checkpoint, or a job's checkpoint.directory: its newest good one"}},
      .options = {TextOption("--data", "FILE",
                             "a text, or .jsonl with a text in each line: prints loss, perplexity "
                             "and bits a byte"),
                  TextOption("--field", "NAME", "of a .jsonl file: the field that has the text",
                             "text"),
                  TextOption("--choices", "FILE",
                             ".jsonl with a question, choices and answer (from 0) in each line: "
                             "prints how often the right choice is the likeliest"),
                  NumberOption("--window", "N",
                               "how many tokens the model sees at once; default: as in training",
                               "", {1, uint64_t(kMaxSequence)})},
      .offers = kNothing,
      .examples = {"trainyard evaluate runs/tiny --data held-out.txt",
                   "trainyard evaluate runs/tiny --choices arc-easy.jsonl --window 512"},
      .run = RunEvaluate};
}

}  // namespace trainyard::cli
