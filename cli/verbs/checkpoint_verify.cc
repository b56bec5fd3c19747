// trainyard checkpoint verify: reads a whole checkpoint and compares every checksum.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {
namespace {

absl::Status RunCheckpointVerify(const Context& context) {
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(context.arguments.Text("DIR")));
  const Checkpoint& checkpoint = *chosen.checkpoint;
  if (!chosen.refused.empty()) {
    return absl::DataLossError(absl::StrCat(absl::StrJoin(chosen.refused, "\n"),
                                            "\nthe newest good one is ", checkpoint.path()));
  }
  const uint64_t bytes = checkpoint.manifest().size_bytes();
  Output& output = context.output;
  if (output.format() != Format::kTable) {
    const nlohmann::ordered_json json = {{"path", checkpoint.path()},
                                         {"step", checkpoint.state().step},
                                         {"size_bytes", bytes},
                                         {"good", true}};
    output.Line(JsonText(json, output.format() == Format::kJson ? 2 : -1));
  } else if (!output.quiet()) {
    output.Line(absl::StrCat("good  ", checkpoint.path(), "  (", FormatBytes(double(bytes)), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

Verb CheckpointVerifyVerb() {
  return {.name = "checkpoint verify",
          .summary = "reads a checkpoint and checks every checksum",
          .positionals = {{"DIR",
                           "a checkpoint, or a job's checkpoint.directory: its newest good one; "
                           "DIR/best: the best one"}},
          .options = {},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard checkpoint verify runs/tiny"},
          .run = RunCheckpointVerify};
}

}  // namespace trainyard::cli
