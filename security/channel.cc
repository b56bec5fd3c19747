#include "security/channel.h"

#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

using grpc::experimental::InterceptionHookPoints;

class AddToken final : public grpc::experimental::Interceptor {
 public:
  explicit AddToken(const std::string& token) : token_(token) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", absl::StrCat("Bearer ", token_));
    }
    methods->Proceed();
  }

 private:
  const std::string& token_;  // The factory's, which the channel keeps.
};

class AddTokens final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit AddTokens(std::string token) : token_(std::move(token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new AddToken(token_);  // gRPC owns it.
  }

 private:
  const std::string token_;
};

}  // namespace

std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& token,
                                    const grpc::ChannelArguments& arguments) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  if (!token.empty()) factories.push_back(std::make_unique<AddTokens>(token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, grpc::InsecureChannelCredentials(), arguments, std::move(factories));
}

}  // namespace trainyard
