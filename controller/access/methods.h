// Reads from the proto files who may call each method.

#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// For example, "/trainyard.v1.JobService/GetJob" has "least: ROLE_VIEWER". The methods that gRPC
// itself serves, health and reflection, want the same role.
class Methods {
 public:
  Methods();

  // Returns null if nobody may call the method.
  const v1::Access* Find(absl::string_view path) const;
  const std::map<std::string, v1::Access, std::less<>>& all() const { return methods_; }

 private:
  std::map<std::string, v1::Access, std::less<>> methods_;
};

}  // namespace trainyard::controller
