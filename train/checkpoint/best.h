// Which checkpoints of a run are the best by their validation loss.
//
// A checkpoint has a loss only if the job validated the very state that the checkpoint holds
// (RunState::validation). Losses are compared if they were measured in the same way. The way that
// counts is that of the newest checkpoint with a loss, because a run may go on with other data.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/opened.h"

namespace trainyard {

// The last part of a path that names the best checkpoint of a directory: "DIR/best". A directory
// that is really there goes before.
inline constexpr char kBestName[] = "best";

struct BestCheckpoints {
  std::vector<ListedCheckpoint> best_first;  // Of equal ones, the newer one comes first.
  std::vector<double> losses;                // Of best_first.
  std::string measure;                       // That of all of them; "" if there are none.
  struct Unreadable {
    ListedCheckpoint listed;
    absl::Status why;
  };
  std::vector<Unreadable> unreadable;  // Nobody knows their losses.
};

// Compares `newest_first`, complete checkpoints of one lineage. Opens those that `opened` has not.
BestCheckpoints OrderByLoss(const std::vector<ListedCheckpoint>& newest_first,
                            OpenedCheckpoints& opened);

// Whether a state with this loss, which is not saved yet, would be among the `most` best of the
// directory's lineage. False for a loss that is not finite. Opens checkpoints that `opened` has
// not. Errors: those of LoadableCheckpoints.
absl::StatusOr<bool> IsAmongBest(const std::string& directory, const ValidationResult& validation,
                                 int64_t most, OpenedCheckpoints& opened);

}  // namespace trainyard
