// Reads the section of a spec that chooses the model, using the tables of the families.

#pragma once

#include <string>
#include <vector>

#include "train/config/fields.h"
#include "train/config/job_config.h"

namespace trainyard {

// A mapping of an architecture's fields may contain a mapping of this name. Its entries count as
// fields of the architecture. On the wire it holds the fields that only one family has.
inline constexpr char kFieldsBeside[] = "fields";
inline constexpr size_t kMaxFieldsBeside = 32;
inline constexpr size_t kMaxFieldNameBytes = 64;

// The fields and groups of all families that a mapping of an architecture's fields can have.
std::vector<std::string> ArchitectureNames();

// Reads the fields and checks their types; ResolveModel (resolve_model.h) checks their values. A
// resolved job has an architecture, and no preset.
void VisitModel(Fields& fields, ModelChoice& out);

}  // namespace trainyard
