#include "cli/open_checkpoint.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard::cli {

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& directory, const UseCheckpoint& use,
                                          Output& output) {
  ASSIGN_OR_RETURN(ChosenCheckpoint chosen, FindCheckpoint(directory, use));
  for (const std::string& reason : chosen.refused) {
    output.Note(absl::StrCat("passed over: ", reason));
  }
  return *std::move(chosen.checkpoint);
}

}  // namespace trainyard::cli
