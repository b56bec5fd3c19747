// A channel whose every call says who makes it, to a controller that shows who it is.

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "security/credentials.h"

namespace trainyard {

// The token goes with each call as `authorization: Bearer TOKEN`. With authorities the connection
// is TLS 1.2 or newer, and ends unless one of them has signed a certificate for the host of
// `address`.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, const Credential& credential,
                                    const grpc::ChannelArguments& arguments);

}  // namespace trainyard
