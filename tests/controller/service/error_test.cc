// Proves that a client which knows google.rpc finds the details, and that they fit into a trailer.

#include "controller/access/error.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/violations.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::controller {
namespace {

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), int(status.error_code()));
  return details;
}

TEST(ToGrpc, ViolationsBecomeBadRequest) {
  Violations violations;
  violations.Add("batch.global", "a multiple of 4", 6, 8);
  violations.Add("steps", "x > 0", 0);
  const grpc::Status status = ToGrpc(violations.ToStatus());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::BadRequest request;
  ASSERT_TRUE(DetailsOf(status).details(0).UnpackTo(&request));
  ASSERT_EQ(request.field_violations_size(), 2);
  EXPECT_EQ(request.field_violations(0).field(), "batch.global");
  EXPECT_EQ(request.field_violations(1).description(), "wanted x > 0, found 0");
}

TEST(ToGrpc, NotFoundNamesTheResourceAndExhaustionSaysWhenToRetry) {
  google::rpc::ResourceInfo resource;
  const auto missing = DetailsOf(ToGrpc(absl::NotFoundError("no job"), "trainyard.v1.Job", "j-1"));
  ASSERT_TRUE(missing.details(0).UnpackTo(&resource));
  EXPECT_EQ(resource.resource_name(), "j-1");
  google::rpc::RetryInfo retry;
  const auto full = DetailsOf(ToGrpc(absl::ResourceExhaustedError("full")));
  ASSERT_TRUE(full.details(0).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().seconds(), 0);
}

// gRPC clients refuse more than 8 KiB of trailers, and then show nothing of the error.
TEST(ToGrpc, ManyViolationsStillFit) {
  Violations violations;
  for (int i = 0; i < 200; ++i) {
    violations.Add(absl::StrCat("model.architecture.field_", i), std::string(300, 'x'));
  }
  const grpc::Status status = ToGrpc(violations.ToStatus());
  EXPECT_LT(status.error_message().size() + status.error_details().size() * 4 / 3, 7000u);
  google::rpc::BadRequest request;
  ASSERT_TRUE(DetailsOf(status).details(0).UnpackTo(&request));
  EXPECT_GT(request.field_violations_size(), 3);
}

// Catches a cut through a character, after which no client can read the details.
TEST(ToGrpc, LongMessagesAreCutBetweenCharacters) {
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'x');
    for (int i = 0; i < 2000; ++i) text += "\xe2\x82\xac";
    const grpc::Status status = ToGrpc(absl::ResourceExhaustedError(text));
    const std::string kept = status.error_message().substr(0, status.error_message().size() - 4);
    EXPECT_EQ((kept.size() - shift) % 3, 0u);
    EXPECT_TRUE(DetailsOf(status).message() == status.error_message());
  }
}

}  // namespace
}  // namespace trainyard::controller
