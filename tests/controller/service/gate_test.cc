// Proves that a call reaches a handler only with the controller's token, whatever the method.

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <prometheus/text_serializer.h>
#include <sys/stat.h>

#include <future>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/access/methods.h"
#include "security/tokens.h"
#include "tests/controller/testing/server_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class GateTest : public ServerFixture {
 protected:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  // How a call with these bytes ends.
  grpc::Status Call(const std::string& path, const Metadata& metadata,
                    grpc_compression_algorithm algorithm = GRPC_COMPRESS_NONE) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(Dial(server_->address().ToString(), Credential(), arguments));
    grpc::ClientContext context;
    // Streams end by it.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    context.set_compression_algorithm(algorithm);
    const grpc::Slice bytes("");
    const grpc::ByteBuffer request(&bytes, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, path, {}, &request, &response,
                   [&](const grpc::Status& status) { ended.set_value(status); });
    return ended.get_future().get();
  }
  std::string Page() {
    return prometheus::TextSerializer().Serialize(server_->registry()->Collect());
  }
};

TEST_F(GateTest, NoMethodIsReachedWithoutTheToken) {
  const std::string right = "Bearer " + server_->access().local_token();
  const std::string unknown = "Bearer " + NewToken()->text;
  std::string damaged = right;
  damaged[damaged.size() / 2] = damaged[damaged.size() / 2] == 'a' ? 'b' : 'a';
  const std::vector<Metadata> refused = {
      {},
      {{"authorization", ""}},
      {{"authorization", "Bearer "}},
      {{"authorization", server_->access().local_token()}},
      {{"authorization", "Basic " + server_->access().local_token()}},
      {{"authorization", unknown}},
      {{"authorization", damaged}},
      {{"authorization", right}, {"authorization", right}},
      {{"authorization", unknown}, {"authorization", right}},
      {{"x-authorization", right}},
  };
  const Methods methods;
  ASSERT_GE(methods.all().size(), 12U);
  for (const auto& [path, access] : methods.all()) {
    for (const Metadata& metadata : refused) {
      SCOPED_TRACE(absl::StrCat(path, " with ", metadata.size(), " credentials"));
      const grpc::Status status = Call(path, metadata);
      EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
      EXPECT_THAT(status.error_message(), Not(HasSubstr(server_->access().local_token())));
    }
  }
  EXPECT_THAT(Page(), Not(HasSubstr("grpc_server_handled_total{"))) << "a handler was reached";
  EXPECT_THAT(Page(),
              HasSubstr(absl::StrCat("trainyard_calls_refused_total{reason=\"credential\"} ",
                                     methods.all().size() * refused.size())));
}

TEST_F(GateTest, EveryMethodIsReachedWithIt) {
  const Methods methods;
  for (const auto& [path, access] : methods.all()) {
    const grpc::Status status =
        Call(path, {{"authorization", "Bearer " + server_->access().local_token()}});
    EXPECT_THAT(status.error_code(),
                Not(AnyOf(grpc::UNAUTHENTICATED, grpc::PERMISSION_DENIED, grpc::UNIMPLEMENTED,
                          grpc::UNAVAILABLE, grpc::RESOURCE_EXHAUSTED, grpc::INTERNAL)))
        << path << ": " << status.error_message();
  }
}

// Whoever asks: nothing is inflated, not even to find out who it is.
TEST_F(GateTest, ACompressedRequestIsRefusedForEveryMethod) {
  const Methods methods;
  for (const auto& [path, access] : methods.all()) {
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
      const grpc::Status status =
          Call(path, {{"authorization", "Bearer " + server_->access().local_token()}}, algorithm);
      EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED) << path;
      EXPECT_THAT(status.error_message(), HasSubstr("wanted a request with the encoding identity"));
    }
  }
  EXPECT_THAT(Page(), HasSubstr("trainyard_calls_refused_total{reason=\"encoding\"}"));
  EXPECT_THAT(Page(), Not(HasSubstr("grpc_server_handled_total{"))) << "a handler was reached";
}

TEST_F(GateTest, WhatIsNoMethodIsRefused) {
  const Metadata right = {{"authorization", "Bearer " + server_->access().local_token()}};
  for (const char* path :
       {"/trainyard.v1.JobService/Nothing", "/a/b", "/trainyard.v1.JobService"}) {
    EXPECT_EQ(Call(path, {}).error_code(), grpc::UNAUTHENTICATED) << path;
    EXPECT_EQ(Call(path, right).error_code(), grpc::UNIMPLEMENTED) << path;
  }
}

TEST_F(GateTest, TheTokenIsItsUsersAloneAndEndsWithTheServer) {
  const std::string path = directory_.path() + "/state/token";
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const std::string before = server_->access().local_token();
  StopServer();
  StartServer();
  EXPECT_EQ(Call("/trainyard.v1.JobService/ListJobs", {{"authorization", "Bearer " + before}})
                .error_code(),
            grpc::UNAUTHENTICATED)
      << "who listened on the port meanwhile was shown it";
}

TEST(Principal, HasTheRolesBeforeItsOwnAndNoWorkers) {
  const auto may = [](v1::Role role, v1::Role least) {
    v1::Access access;
    access.set_least(least);
    return Principal{.name = "x", .roles = {role}}.MayCall(access);
  };
  const std::vector<v1::Role> people = {v1::ROLE_VIEWER, v1::ROLE_SUBMITTER, v1::ROLE_OPERATOR,
                                        v1::ROLE_ADMIN};
  for (size_t i = 0; i < people.size(); ++i) {
    for (size_t j = 0; j < people.size(); ++j) EXPECT_EQ(may(people[i], people[j]), i >= j);
    EXPECT_FALSE(may(people[i], v1::ROLE_WORKER));
    EXPECT_FALSE(may(v1::ROLE_WORKER, people[i]));
  }
  EXPECT_TRUE(may(v1::ROLE_WORKER, v1::ROLE_WORKER));
  EXPECT_FALSE(Principal().MayCall(v1::Access()));
}

}  // namespace
}  // namespace trainyard::controller
