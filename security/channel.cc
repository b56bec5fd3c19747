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
  const std::string& token_;  // Owned by the factory, which the channel keeps.
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

std::shared_ptr<grpc::ChannelCredentials> OfConnection(const Credential& credential) {
  if (credential.authorities.empty()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = credential.authorities,
                               .pem_private_key = credential.identity.key_pem,
                               .pem_cert_chain = credential.identity.certificate_pem});
}

}  // namespace

std::shared_ptr<grpc::Channel> Dial(const std::string& address, const Credential& credential,
                                    const grpc::ChannelArguments& arguments) {
  grpc::ChannelArguments ours = arguments;
  // Without TLS the controller is on this machine, and a proxy would read the token.
  if (credential.authorities.empty()) ours.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  if (!credential.token.empty()) factories.push_back(std::make_unique<AddTokens>(credential.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, OfConnection(credential),
                                                                 ours, std::move(factories));
}

}  // namespace trainyard
