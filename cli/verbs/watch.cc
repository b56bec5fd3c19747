// trainyard watch: follows a job to its end.

#include "cli/follow.h"
#include "cli/verbs/verbs.h"

namespace trainyard::cli {
namespace {

absl::Status RunWatch(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  return FollowJob(client, context.arguments.Text("JOB"), context.output);
}

}  // namespace

Verb WatchVerb() {
  return {
      .name = "watch",
      .summary =
          "follows a job; exits by its outcome (3: failed, cancelled); Ctrl-C leaves it running",
      .positionals = {{"JOB", "the job's id"}},
      .options = {},
      .offers = kController | kFormats | kQuiet,
      .examples = {"trainyard watch j-6aewpgm800", "trainyard watch j-6aewpgm800 -o jsonl"},
      .run = RunWatch};
}

}  // namespace trainyard::cli
