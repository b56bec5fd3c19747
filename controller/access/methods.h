// What the proto files say of every method: who may call it.

#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// "least: ROLE_VIEWER" for "/trainyard.v1.JobService/GetJob". What gRPC itself serves, health and
// reflection, is for whoever may look at jobs.
class Methods {
 public:
  Methods();

  // Null: nobody may call it.
  const v1::Access* Find(absl::string_view path) const;
  const std::map<std::string, v1::Access, std::less<>>& all() const { return methods_; }

 private:
  std::map<std::string, v1::Access, std::less<>> methods_;
};

}  // namespace trainyard::controller
