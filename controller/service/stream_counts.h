// How many streams the connections of this process's gRPC servers have opened, as gRPC counts them
// for channelz. Nothing else tells what goes on below the gate and the handlers.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trainyard::controller {

struct StreamCounts {
  uint64_t started = 0;
  uint64_t ended = 0;
};

// Not thread-safe.
class Transports {
 public:
  // Calls `each` with the peer and gRPC's number of every connection that is new since the last
  // call, and of some that are not. gRPC numbers a connection once its handshake is over.
  void ForEachNew(const std::function<void(const std::string& peer, int64_t number)>& each);

 private:
  int64_t newest_ = 0;
};

// Takes about 20 microseconds. Nothing: the connection is over.
std::optional<StreamCounts> CountsOf(int64_t transport);

}  // namespace trainyard::controller
