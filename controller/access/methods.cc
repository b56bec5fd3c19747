#include "controller/access/methods.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "trainyard/v1/cluster.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

Methods::Methods() {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Grant::descriptor()->file(), v1::Job::descriptor()->file(),
        v1::Worker::descriptor()->file(), v1::ConnectRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        const google::protobuf::MethodDescriptor& method = *service.method(m);
        const v1::Access& access = method.options().GetExtension(v1::access);
        CHECK(access.least() != v1::ROLE_UNSPECIFIED) << method.full_name();
        methods_.emplace(absl::StrCat("/", service.full_name(), "/", method.name()), access);
      }
    }
  }
  v1::Access look;
  look.set_least(v1::ROLE_VIEWER);
  for (const char* path : {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    methods_.emplace(path, look);
  }
}

const v1::Access* Methods::Find(absl::string_view path) const {
  const auto found = methods_.find(path);
  return found == methods_.end() ? nullptr : &found->second;
}

}  // namespace trainyard::controller
