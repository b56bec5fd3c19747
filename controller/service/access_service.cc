#include "controller/service/access_service.h"

#include "controller/service/reply.h"

namespace trainyard::controller {

grpc::ServerUnaryReactor* AccessService::WhoAmI(grpc::CallbackServerContext* context,
                                                const v1::WhoAmIRequest*,
                                                v1::WhoAmIResponse* response) {
  return Reply(context, [&] {
    const Principal caller = gate_.CallerOf(*context);
    response->set_name(caller.name);
    for (const v1::Role role : caller.roles) response->add_roles(role);
    return grpc::Status::OK;
  });
}

}  // namespace trainyard::controller
