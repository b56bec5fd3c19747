// trainyard completion: prints a script for the shell.

#include "cli/completion.h"

#include "cli/verbs/verbs.h"

namespace trainyard::cli {
namespace {

absl::Status RunCompletion(const Context& context) {
  context.output.Text(BashCompletion(Verbs()));
  return absl::OkStatus();
}

}  // namespace

Verb CompletionVerb() {
  return {.name = "completion",
          .summary = "prints a completion script for bash",
          .positionals = {},
          .options = {},
          .offers = kNothing,
          .examples = {"source <(trainyard completion)"},
          .run = RunCompletion};
}

}  // namespace trainyard::cli
