// Makes channels to a controller. Every call shows the caller's credential, and the controller
// proves itself.

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "security/credentials.h"

namespace trainyard {

// Sends the token with each call, as `authorization: Bearer TOKEN`. If `credential` has
// authorities, the connection uses TLS 1.2 or newer, and ends unless one of them has signed the
// certificate that the controller shows for the host of `address`.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, const Credential& credential,
                                    const grpc::ChannelArguments& arguments);

}  // namespace trainyard
