// The section of a spec that says which model is trained, by the tables of the families.

#pragma once

#include <string>
#include <vector>

#include "train/config/fields.h"
#include "train/config/job_config.h"

namespace trainyard {

// A mapping of an architecture's fields may have some of them in a mapping of its own by this name:
// on the wire those that only one family has. They count as if they stood beside it.
inline constexpr char kFieldsBeside[] = "fields";
inline constexpr size_t kMaxFieldsBeside = 32;
inline constexpr size_t kMaxFieldNameBytes = 64;

// The fields and groups that a mapping of an architecture's fields can have, of all families.
std::vector<std::string> ArchitectureNames();

// Types of the fields only; what is legal, ResolveModel (resolve_model.h) says. A resolved job has
// an architecture, and no preset.
void VisitModel(Fields& fields, ModelChoice& out);

}  // namespace trainyard
