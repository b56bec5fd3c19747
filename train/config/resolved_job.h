// A job with every default applied, as the controller stores it and gives it to ranks: what a rank
// trains is what the controller has checked, whatever the defaults of the rank's release are.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/resolved_job_format.h"
#include "train/config/job_config.h"

namespace trainyard {

// The job as JSON, every field of it beside its `format`: a preset as an architecture, and every
// choice that the spec left open made. The job must be valid (validate.h). ParseJobConfig (parse.h)
// makes the same job of the text.
std::string ResolvedJobText(JobConfig job);
// Returns whether ResolvedJobText made the text. Otherwise the text is a spec as JSON, which an
// earlier release stored.
bool IsResolvedJob(absl::string_view text);

}  // namespace trainyard
