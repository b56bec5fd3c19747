// The section of a spec that says which model is trained, by the tables of the families.

#pragma once

#include "train/config/fields.h"
#include "train/config/job_config.h"

namespace trainyard {

// Types of the fields only; what is legal, ResolveModel (resolve_model.h) says. A resolved job has
// an architecture, and no preset.
void VisitModel(Fields& fields, ModelChoice& out);

}  // namespace trainyard
