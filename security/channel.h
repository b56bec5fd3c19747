// A channel whose every call says who makes it.

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace trainyard {

// `token` goes with each call as `authorization: Bearer TOKEN`; an empty one does not.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& token,
                                    const grpc::ChannelArguments& arguments);

}  // namespace trainyard
