// Resolved jobs (resolved_job.h) that an earlier release stored. Such a job must train what the
// earlier release had checked, so it is not resolved again with this release's defaults.

#pragma once

#include "train/config/yaml.h"

namespace trainyard {

// Returns the job with every field of kResolvedJobFormat. A field that the job's format did not
// have gets the value that a job without the field meant. The key `format` stays as it is. A job
// whose format this release does not read is returned unchanged.
YamlNode WithLaterFields(YamlNode job);

}  // namespace trainyard
