// A path in a spec, and the field that contains it.

#pragma once

#include <string>

namespace trainyard {

struct SpecPath {
  std::string field;  // "checkpoint.directory"
  std::string path;
  bool operator==(const SpecPath&) const = default;
};

void VisitFields(auto& v, SpecPath& p) { v("field", p.field), v("path", p.path); }

}  // namespace trainyard
