// What a job's steps reported, kept beside its checkpoints, so that no history is lost
// with a host that never returns: DIR/epoch-E/steps.jsonl, one JSON object a line, with the number
// `step`; the writer chooses the other fields.
//
// An attempt appends the steps since its last checkpoint before it commits the next one: every
// checkpoint has the history before it. Lines beyond the checkpoint that a successor continues are
// of steps that it runs again: they lie outside of the lineage, and are not read.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kHistoryName[] = "steps.jsonl";

// Whole lines, durable once this returns OK. Rank 0 of an epoch that has begun.
absl::Status AppendHistory(const std::string& directory, int64_t epoch, const std::string& lines,
                           Storage& storage);

// Calls use(epoch, line) for the lines of the lineage with a step beyond `after`, in the order of
// the steps, each step once. What is damaged or torn is left out. An epoch without a file has none.
void ReadHistory(const std::string& directory, const Lineage& lineage, int64_t after,
                 const std::function<void(int64_t epoch, const std::string& line)>& use);

}  // namespace trainyard
