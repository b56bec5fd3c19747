// trainyard checkpoint verify: reads all of a checkpoint and checks every sum.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "controller/cli/format.h"
#include "controller/cli/verbs/verbs.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {
namespace {

absl::Status Run(const Context& context) {
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(context.arguments.Text("DIR")));
  const Checkpoint& checkpoint = *chosen.checkpoint;
  if (!chosen.refused.empty()) {
    return absl::DataLossError(absl::StrCat(absl::StrJoin(chosen.refused, "\n"),
                                            "\nthe newest good one is ", checkpoint.path()));
  }
  RETURN_IF_ERROR(checkpoint.Verify());
  if (!context.output.quiet()) {
    context.output.Line(absl::StrCat("good  ", checkpoint.path(), "  (",
                                     FormatBytes(double(checkpoint.manifest().size_bytes())), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

Verb CheckpointVerifyVerb() {
  return {.name = "checkpoint verify",
          .summary = "reads a checkpoint and checks every checksum",
          .positionals = {{"DIR", "a checkpoint, or a job's checkpoint.directory: its newest"}},
          .options = {},
          .offers = kQuiet,
          .examples = {"trainyard checkpoint verify runs/tiny"},
          .run = Run};
}

}  // namespace trainyard::cli
