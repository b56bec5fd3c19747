// Proves that a worker counts as heard only when the controller has read what the worker sent.

#include "controller/service/stream_link.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

// Bug it must catch: a controller that does not come to its workers takes them for silent, and
// their jobs restart.
TEST(StreamLinkTest, AWorkerWhoseBytesAreUnreadIsNotSilent) {
  grpc::ServerContext context;
  const auto use = std::make_shared<ConnectionUse>();
  StreamLink link(nullptr, context, use);
  EXPECT_FALSE(link.holding());
  use->unread = true;
  EXPECT_TRUE(link.holding());
  link.Close(absl::CancelledError("gone"));
  EXPECT_FALSE(link.holding()) << "nobody reads on";
}

}  // namespace
}  // namespace trainyard::controller
