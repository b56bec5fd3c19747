// The line by which publishers of performance tables describe a run, for a job that has ended.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/output.h"
#include "models/arch/conventions.h"
#include "train/config/job_config.h"

namespace trainyard::cli {

// The labels of a spec of recipes/published.
inline constexpr char kPageLabel[] = "page";           // A FLOPs convention by its name.
inline constexpr char kPageTaskLabel[] = "page_task";  // A FLOPs task by its name.

// How a page counts FLOPs.
struct PageCount {
  FlopsConvention convention = FlopsConvention::kExact;
  FlopsTask task = FlopsTask::kPretrain;
  bool operator==(const PageCount&) const = default;
};
// Returns the count of the page that the job's labels name; exact if they name none.
// INVALID_ARGUMENT: a label has no such name, or the page has no formula for the model and the
// task.
absl::StatusOr<PageCount> PageOf(const JobConfig& job, const ModelConfig& model);
// The same, or exact in place of an error.
PageCount CountOf(const JobConfig& job, const ModelConfig& model);

// What a job's steps achieved, by the names and units of the tables.
struct PublishedSpeed {
  double seconds_per_step = 0;  // The median, without the first tenth of the steps.
  double tokens_per_s_gpu = 0;
  double tflops_per_gpu = 0;  // By CountOf; exact: of what the job computes, on whole sequences.
  double mfu = 0;             // Percent of the devices' peak; 0: a peak is unknown.
};
// `steps` must not be empty.
PublishedSpeed SpeedOf(const JobConfig& job, const ModelConfig& model,
                       const std::vector<v1::StepRecord>& steps);

// Reads the job's steps from the controller, and prints the line.
absl::Status PrintPublishedLine(Client& client, const std::string& job_id, const JobConfig& job,
                                const ModelConfig& model, Output& output);

}  // namespace trainyard::cli
