// A job with every default applied, as the controller stores it and gives it to ranks: what a rank
// trains is what the controller has checked, whatever the defaults of the rank's release are.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "train/config/job_config.h"

namespace trainyard {

// Of the text. Another meaning of a field, or another field, is another format.
inline constexpr int64_t kResolvedJobFormat = 1;

// The job as JSON, every field of it beside its `format`: a preset as an architecture, and every
// choice that the spec left open made. The job must be valid (validate.h). ParseJobConfig (parse.h)
// makes the same job of the text.
std::string ResolvedJobText(JobConfig job);
// Of a text by the function above, or of a spec as JSON, which an earlier release stored.
bool IsResolvedJob(absl::string_view text);

}  // namespace trainyard
