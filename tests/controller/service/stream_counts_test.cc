// Proves that gRPC says how many streams each of the server's connections has begun and ended.

#include "controller/service/stream_counts.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "controller/service/connection_users.h"
#include "tests/controller/testing/server_fixture.h"

namespace trainyard::controller {
namespace {

class StreamCountsTest : public ServerFixture {};

// Bug it must catch: another gRPC names its counts otherwise, and no stream has a price any more.
TEST_F(StreamCountsTest, AreThoseOfTheConnectionsCalls) {
  const std::string id = MustSubmit(Spec());
  Get(id);
  v1::WatchJobRequest request;
  request.set_job_id(id);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::vector<int64_t> numbers;
  Transports().ForEachNew([&](const std::string& peer, int64_t number) {
    EXPECT_NE(SourceOf(peer), "");
    numbers.push_back(number);
  });
  uint64_t started = 0, ended = 0;
  const auto count = [&] {
    started = ended = 0;
    for (const int64_t number : numbers) {
      const std::optional<StreamCounts> counts = CountsOf(number);
      if (!counts) continue;
      started += counts->started;
      ended += counts->ended;
    }
    return ended;
  };
  // A client may have its answer before the server's side of the call has ended.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (count() < 2 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(started, 3u);
  EXPECT_EQ(ended, 2u);
  context.TryCancel();
  stream->Finish();
  EXPECT_FALSE(CountsOf(1 << 30).has_value()) << "no connection has this number";
}

}  // namespace
}  // namespace trainyard::controller
