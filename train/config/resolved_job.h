// A job with every default applied, as the controller stores it and sends it to ranks. So a rank
// trains the job that the controller has checked, whatever the defaults of the rank's release are.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "common/resolved_job_format.h"
#include "train/config/job_config.h"

namespace trainyard {

// Returns every field of a job but the architecture, with the names and in the order of a resolved
// job. The job need not be valid.
nlohmann::ordered_json JobJson(JobConfig job);

// Returns the job as JSON, with its `format` and every field. A preset is written as an
// architecture, and all defaults are applied. The job must be valid (validate.h). ParseJobConfig
// (parse.h) makes the same job from the text.
std::string ResolvedJobText(JobConfig job);
// Whether ResolvedJobText made the text. Otherwise the text is a spec as JSON, which an earlier
// release stored.
bool IsResolvedJob(absl::string_view text);

}  // namespace trainyard
