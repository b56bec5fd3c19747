// Compares a job with the run whose checkpoints it continues. The command line does so before a
// submit, and rank 0 before the job takes over the checkpoint directory; so does a trainer that
// runs alone.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/declared.h"
#include "common/violations.h"
#include "train/config/job_config.h"

namespace trainyard {

// A field that differs. `before` and `now` are its values as JSON.
struct RunChange {
  std::string field;  // "optimizer.adamw.learning_rate"
  std::string before;
  std::string now;
  // kTraining and kStart are named. kSamples is refused unless it is allowed by name. kState is
  // refused.
  ChangeEffect effect = ChangeEffect::kTraining;
};

// Returns the fields in which a valid job differs from the run that it continues. Leaves out fields
// that do not change what is trained: names, layout, checkpoints, validation. A field that is not
// known here counts as training. The paths of data are named, and the files themselves are compared
// by whoever can read them (train/checkpoint/inputs.h).
std::vector<RunChange> ChangesOfRun(const JobConfig& before, const JobConfig& now);

// Whether the field is a path of data. Other files of the same content are the same samples, so
// its change may be (kTraining) if the contents are compared.
bool NamesData(const RunChange& change);

// "seed: 3 before, 4 now; ...": one line for a person.
std::string Described(const RunChange& change);

// Whether `allow`, a list of ContinuesConfig, names the field or a section that holds it.
bool IsAllowed(const std::vector<std::string>& allow, absl::string_view field);

// INVALID_ARGUMENT (violations): names each change that is refused, with both values and what to
// do.
absl::Status CheckChanges(const std::vector<RunChange>& changes,
                          const std::vector<std::string>& allow);

// INVALID_ARGUMENT (violations): the run has done all of the job's steps, of which `done` are.
absl::Status CheckLonger(int64_t done, const JobConfig& now);

// Adds violations of `continues`: a job without checkpoint.directory or without a name of the run,
// and names in `allow` that allow nothing.
void ValidateContinues(const JobConfig& job, Violations& violations);

}  // namespace trainyard
