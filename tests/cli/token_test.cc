// Calls that decide who gets in are repeated without harm.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/command_line.h"
#include "cli/verbs/verbs.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

class TokenTest : public ::testing::Test, protected v1::AccessService::Service {
 protected:
  TokenTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~TokenTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  int Trainyard(const std::vector<std::string>& words) {
    Output output(out_, err_, Terminal());
    return RunCommandLine(
        Verbs(), words, {.controller = absl::StrCat("127.0.0.1:", port_), .binary_directory = "/x"},
        output);
  }

  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    request_ids_.push_back(request->request_id());
    response->set_token("the token");
    return Next();
  }
  grpc::Status RevokeGrant(grpc::ServerContext*, const v1::RevokeGrantRequest*,
                           v1::RevokeGrantResponse*) override {
    return Next();
  }
  grpc::Status Next() {
    const grpc::StatusCode code = answers_.front();
    answers_.erase(answers_.begin());
    return {code, "as the test says"};
  }

  std::vector<grpc::StatusCode> answers_;
  std::vector<std::string> request_ids_;
  std::ostringstream out_, err_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TokenTest, ATokenIsAskedForAgainWithTheSameRequestId) {
  answers_ = {grpc::UNAVAILABLE, grpc::OK, grpc::OK};
  EXPECT_EQ(Trainyard({"token", "create", "alice"}), 0) << err_.str();
  EXPECT_EQ(Trainyard({"token", "create", "alice"}), 0) << err_.str();
  ASSERT_EQ(request_ids_.size(), 3u);
  EXPECT_EQ(request_ids_[0].size(), 36u);
  EXPECT_EQ(request_ids_[0], request_ids_[1]);
  EXPECT_NE(request_ids_[0], request_ids_[2]);
}

TEST_F(TokenTest, AGrantThatAnEarlierAttemptHasRevokedIsRevoked) {
  answers_ = {grpc::UNAVAILABLE, grpc::NOT_FOUND};
  EXPECT_EQ(Trainyard({"token", "revoke", "4fJk02Lq"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("there is no grant 4fJk02Lq any more"));
  answers_ = {grpc::NOT_FOUND};
  EXPECT_EQ(Trainyard({"token", "revoke", "4fJk02Lq"}), 1);
}

// The seconds of both are beyond 2^63, and those of the first would wrap around to a legal time.
TEST_F(TokenTest, ATimeBeyondAllNumbersIsRefusedHere) {
  for (const char* time : {"128102389400760864d", "106751991167301d"}) {
    EXPECT_EQ(Trainyard({"token", "create", "alice", "--valid", time}), 2) << time;
    EXPECT_THAT(err_.str(), HasSubstr(time));
  }
  EXPECT_TRUE(request_ids_.empty());
}

}  // namespace
}  // namespace trainyard::cli
