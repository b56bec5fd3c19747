// trainyard checkpoint digest: prints one hash of the trained parameters, independent of the
// layout.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/open_checkpoint.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

absl::Status RunCheckpointDigest(const Context& context) {
  std::string digest;
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    ASSIGN_OR_RETURN(digest, checkpoint.Digest());
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                   OpenCheckpoint(context.arguments.Text("DIR"), use, context.output));
  if (context.output.format() == Format::kTable) {
    context.output.Line(absl::StrCat(digest, "  ", checkpoint.path()));
  } else {
    const nlohmann::ordered_json json = {
        {"digest", digest}, {"path", checkpoint.path()}, {"step", checkpoint.state().step}};
    context.output.Line(JsonText(json, context.output.format() == Format::kJson ? 2 : -1));
  }
  return absl::OkStatus();
}

}  // namespace

Verb CheckpointDigestVerb() {
  return {.name = "checkpoint digest",
          .summary = "prints a checkpoint's digest: equal runs have equal ones",
          .positionals = {{"DIR",
                           "a checkpoint, or a job's checkpoint.directory: its newest good one; "
                           "DIR/best: the best one"}},
          .options = {},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard checkpoint digest runs/tiny/epoch-1/step-200"},
          .run = RunCheckpointDigest};
}

}  // namespace trainyard::cli
