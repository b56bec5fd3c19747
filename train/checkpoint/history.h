// The step reports of a job, kept beside its checkpoints, so that the history is not lost with a
// host that never returns. DIR/epoch-E/steps.jsonl has one JSON object a line, with the number
// `step`; the writer chooses the other fields. If an append failed, a part of a line may be there,
// too.
//
// Before an attempt commits a checkpoint, it appends the steps since its last checkpoint. So every
// checkpoint has the history before it. Lines after the checkpoint that a successor continues are
// about steps that the successor runs again. They are outside the lineage, and are not read.
//
// A file has at most kMostHistoryBytes. Above this its oldest lines are thinned: of those before
// the newest half, those stay whose step is a multiple of 2^n, with n as small as the bound allows.
// The newest half stays whole.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kHistoryName[] = "steps.jsonl";
// 160,000 steps, of which half are whole. What a model wrote after a step may take 12 KiB more.
inline constexpr uint64_t kMostHistoryBytes = 64 << 20;

// Appends whole lines, which are durable once this returns OK. Ends a torn line of an earlier
// append first. Only rank 0 of an epoch that has
// begun may call it.
absl::Status AppendHistory(const std::string& directory, int64_t epoch, const std::string& lines,
                           Storage& storage);

// Calls use(epoch, line) for the lines of the lineage with a step after `after`, in the order of
// steps, each step once. Leaves out damaged and torn lines, and logs how many. An epoch without a
// file has no lines.
void ReadHistory(const std::string& directory, const Lineage& lineage, int64_t after,
                 const std::function<void(int64_t epoch, const std::string& line)>& use);

}  // namespace trainyard
