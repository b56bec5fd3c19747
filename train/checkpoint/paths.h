// The names in a job's checkpoint directory: DIR/owner.json, DIR/epoch-E/step-N/.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr char kOwnerName[] = "owner.json";
inline constexpr char kBaseName[] = "base";

std::string EpochPath(const std::string& directory, int64_t epoch);
// "DIR/epoch-3/step-40".
std::string CheckpointPath(const std::string& directory, int64_t epoch, int64_t step);
// "DIR/epoch-3/base": the frozen parameters of a job, written by attempt 3.
std::string BasePath(const std::string& directory, int64_t epoch);
std::string DataFileName(int64_t rank);  // "rank-0.bin"

// Returns the number in "epoch-3" or "step-40", or nullopt for other names, also for "step-040" and
// for an epoch above kMostEpoch (common/epochs.h).
std::optional<int64_t> ParseEpochName(absl::string_view name);
// Whether a name has the form of an epoch's, with a number that no attempt has.
bool IsImpossibleEpochName(absl::string_view name);
std::optional<int64_t> ParseStepName(absl::string_view name);

// Returns (epoch, step) of a path that ends in "epoch-3/step-40".
std::optional<std::pair<int64_t, int64_t>> ParseCheckpointPath(absl::string_view path);

}  // namespace trainyard
