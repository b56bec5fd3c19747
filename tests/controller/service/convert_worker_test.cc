// What a worker says of itself means the same to the controller.

#include "controller/service/convert_worker.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

// Bug it must catch: ranks that may outlive their daemon for minutes, and are given up at once.
TEST(ConvertWorker, RanksMayOutliveTheirDaemonForAsManySecondsAsItSays) {
  v1::Register message;
  message.set_protocol_version(kWorkerProtocolVersion);
  message.set_worker_id("w");
  const auto detach = [&](uint32_t seconds) {
    message.set_detach_seconds(seconds);
    const absl::StatusOr<Registration> registration = FromProto(message);
    EXPECT_TRUE(registration.ok()) << registration.status();
    return registration.ok() ? registration->detach : absl::ZeroDuration();
  };
  EXPECT_EQ(detach(0), absl::ZeroDuration());
  EXPECT_EQ(detach(90), absl::Seconds(90));
  EXPECT_EQ(detach(600), absl::Minutes(10));
  EXPECT_EQ(detach(601), absl::Minutes(10)) << "at most";
}

}  // namespace
}  // namespace trainyard::controller
