// What the ranks of a gang decide together.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"

namespace trainyard {

// Every rank calls it with its own outcome. OK where all are OK; otherwise each rank gets the error
// of the lowest rank that has one: that rank as it is, the others as "rank 2: ...", cut to a
// kilobyte. So a gang ends for one reason, whichever rank's report is read first. A storage fault,
// which is one host's, is UNAVAILABLE to the other ranks.
absl::Status AgreeOnStatus(Collective& collective, const absl::Status& mine);

// The sum of every rank's number, in rank order; absent on every rank if one rank has none.
std::optional<double> SumWhereAllKnow(Collective& collective, std::optional<double> mine);

// Every rank's text, in rank order, on the root; nothing elsewhere.
std::vector<std::string> GatherText(Collective& collective, const std::string& text, int root);

// The root's text, on every rank.
std::string BroadcastText(Collective& collective, std::string text, int root);

}  // namespace trainyard
