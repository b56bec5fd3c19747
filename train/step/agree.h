// Decisions that the ranks of a gang make together.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"

namespace trainyard {

// Every rank calls this with its own status. Returns OK if all are OK. Otherwise each rank gets the
// error of the lowest rank that has one: that rank unchanged, the others as "rank 2: ...", cut to a
// kilobyte. So a gang ends for one reason, whichever rank's report is read first. A storage fault
// concerns one host, so the other ranks get it as UNAVAILABLE.
absl::Status AgreeOnStatus(Collective& collective, const absl::Status& mine);

// Returns the sum of all ranks' numbers, in rank order. Returns nullopt on all ranks if one rank
// has no number.
std::optional<double> SumWhereAllKnow(Collective& collective, std::optional<double> mine);

// Returns all ranks' texts in rank order on the root, and an empty list elsewhere.
std::vector<std::string> GatherText(Collective& collective, const std::string& text, int root);

// Returns the root's text on every rank.
std::string BroadcastText(Collective& collective, std::string text, int root);

}  // namespace trainyard
