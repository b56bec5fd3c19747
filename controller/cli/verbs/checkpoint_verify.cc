// trainyard checkpoint verify: reads all of a checkpoint and checks every sum.

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/cli/checkpoint_path.h"
#include "controller/cli/format.h"
#include "controller/cli/verbs/verbs.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {
namespace {

absl::Status Run(const Context& context) {
  ASSIGN_OR_RETURN(const std::string path, ResolveCheckpoint(context.arguments.Text("DIR")));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
  RETURN_IF_ERROR(checkpoint.Verify());
  if (!context.output.quiet()) {
    context.output.Line(absl::StrCat("good  ", path, "  (",
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
