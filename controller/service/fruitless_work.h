// Estimates how much gRPC works on a connection for nothing: for bytes and streams of which no
// message and no call comes.

#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "controller/service/stream_counts.h"

namespace trainyard::controller {

// Work that is owed, and forgiven at a fixed rate. Not thread-safe.
class Debt {
 public:
  // `forgiven`: how much of it goes with each unit of time.
  explicit Debt(double forgiven) : forgiven_(forgiven) {}

  // Adds work, or takes back work that proved useful. `now` never goes back.
  void Add(absl::Duration work, absl::Duration now);
  // Adds work that stays owed until it is taken back, by a negative value.
  void Hold(absl::Duration work) { held_ += work; }
  absl::Duration At(absl::Duration now) const;

 private:
  double forgiven_;
  absl::Duration held_;
  absl::Duration work_;
  absl::Duration at_;
};

// Not thread-safe.
class FruitlessWork {
 public:
  // What a connection has done since its start.
  struct Calls {  // Those that reached a handler.
    uint64_t begun = 0;
    uint64_t ended = 0;
  };
  struct Bytes {
    uint64_t read = 0;    // By gRPC, from the peer.
    uint64_t useful = 0;  // Of calls and messages that reached a handler.
    uint64_t sent = 0;    // By gRPC, to the peer.
    uint64_t unread = 0;  // These have arrived, and gRPC has not read them.
  };

  // Takes newer counts. Returns the work since the last ones. It is negative if a message has
  // arrived for whose parts there was a charge. `computed`: how much processor time since the last
  // look may have been spent on this connection.
  absl::Duration Of(const Bytes& bytes, absl::Duration now, absl::Duration computed);
  // Returns the price of streams that ended without a call. A stream is charged at the second count
  // that sees it.
  absl::Duration Of(const StreamCounts& streams, const Calls& calls);
  // The streams that were open without a call at the last count. Calls may come of them.
  absl::Duration OfWaitingStreams() const;
  // The connection is over, so nothing comes of them.
  absl::Duration OfItsEnd();

  // Whether gRPC has read no further for a while although more is there.
  bool StandsStill(const Bytes& bytes, absl::Duration now) const;
  // Bytes of which nothing has come so far.
  double pending() const { return pending_; }
  // Of these, the bytes that gRPC may still keep in memory.
  double held() const { return pending_ - freed_; }
  // Whether so many bytes may lie in memory that the connection must end, whatever they cost.
  bool HoldsTooMuch() const;

 private:
  absl::Duration OfStandstill(const Bytes& bytes, absl::Duration now,
                              absl::Duration computed) const;

  Bytes bytes_;
  absl::Duration at_;
  // From when on the rest should have been read. Only if gRPC has read some and left some.
  absl::Duration overdue_ = absl::InfiniteDuration();
  absl::Duration stood_;  // What was charged for that, and not given back.
  double pending_ = 0;
  double freed_ = 0;  // Of these, by the end of all streams.
  uint64_t ended_ = 0;
  uint64_t open_ = 1;  // Streams. Until they are counted, there may be one.
  uint64_t waiting_ = 0;
  uint64_t fruitless_ = 0;
  uint64_t perhaps_ = 0;
};

}  // namespace trainyard::controller
