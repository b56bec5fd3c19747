#include "controller/service/fruitless_work.h"

#include <algorithm>
#include <utility>

#include "controller/service/limits.h"

namespace trainyard::controller {
namespace {

// What gRPC does for a stream that comes to nothing, and for each byte of frames that do, measured
// on one core (docs/adr/0020-floods-below-the-gate.md).
constexpr absl::Duration kStream = absl::Microseconds(100);
constexpr absl::Duration kByte = absl::Nanoseconds(8);

// gRPC goes on to read as long as more is there. If it does not do so within this time, it works on
// what it has read: on thousands of streams, or on half a header, through which it goes again with
// each frame. Or it has no processor: so what counts is time in which the process computes.
constexpr absl::Duration kReadOn = absl::Milliseconds(5);
// Below this many bytes there is no charge: the bytes may be a call on its way, and the unread ones
// the next call.
constexpr double kMore = 2 << 10;

// So that a debt is forgiven within ten seconds at a twentieth of a core.
constexpr absl::Duration kLargestDebt = absl::Milliseconds(500);

// A request on its way, with its frames and its share of TLS.
constexpr double kRequest = 1.1 * kMaxReceiveBytes;
// Half a header block stays in memory, and so does half a request.
constexpr double kMostPending = 1 << 20;
constexpr uint64_t kMostRequests = 8;

// Who reads long answers says now and then that it has read them. Others ping to see whether the
// controller still is there.
constexpr double kSentForOne = 64;
constexpr double kForgivenBytesPerSecond = 16;

}  // namespace

void Debt::Add(absl::Duration work, absl::Duration now) {
  work_ = std::clamp(At(now) - held_ + work, absl::ZeroDuration(), kLargestDebt);
  at_ = now;
}

absl::Duration Debt::At(absl::Duration now) const {
  return held_ + std::max(work_ - forgiven_ * (now - at_), absl::ZeroDuration());
}

absl::Duration FruitlessWork::Of(const Bytes& bytes, absl::Duration now, absl::Duration computed) {
  const double read = double(bytes.read) - double(bytes_.read);
  const double useful = double(bytes.useful) - double(bytes_.useful);
  const double good = useful + (double(bytes.sent) - double(bytes_.sent)) / kSentForOne +
                      kForgivenBytesPerSecond * absl::ToDoubleSeconds(now - at_);
  const double pending = std::exchange(pending_, std::max(pending_ + read - good, 0.0));
  freed_ = std::min(freed_, pending_);
  // The message waited while gRPC worked for others. A small one may follow much that was a flood.
  const absl::Duration back = stood_ * std::min(useful / std::max(pending + read, 1.0), 1.0);
  const absl::Duration standstill = OfStandstill(bytes, now, computed) - back;
  stood_ += standstill;
  const bool more = std::min(bytes_.unread, bytes.unread) > 0 && pending_ >= kMore;
  if (!more) overdue_ = absl::InfiniteDuration();
  if (more && read != 0) overdue_ = now + kReadOn;
  bytes_ = bytes;
  at_ = now;
  return standstill + (pending_ - pending) * kByte;
}

bool FruitlessWork::StandsStill(const Bytes& bytes, absl::Duration now) const {
  return std::min(bytes_.unread, bytes.unread) > 0 && bytes.useful == bytes_.useful &&
         now > overdue_;
}

absl::Duration FruitlessWork::OfStandstill(const Bytes& bytes, absl::Duration now,
                                           absl::Duration computed) const {
  if (!StandsStill(bytes, now)) return absl::ZeroDuration();
  return std::min(now - std::max(at_, overdue_), computed);
}

absl::Duration FruitlessWork::Of(const StreamCounts& streams, const Calls& calls) {
  open_ = streams.started - std::min(streams.started, streams.ended);
  waiting_ = open_ - std::min(open_, calls.begun - std::min(calls.begun, calls.ended));
  if (streams.ended != std::exchange(ended_, streams.ended) && open_ == 0) freed_ = pending_;
  // A stream ends a little before its call. So only those count that are still there the next time.
  const uint64_t perhaps = streams.ended - std::min(streams.ended, calls.ended);
  const uint64_t fruitless = std::max(fruitless_, std::min(perhaps, perhaps_));
  perhaps_ = perhaps;
  return double(fruitless - std::exchange(fruitless_, fruitless)) * kStream;
}

absl::Duration FruitlessWork::OfWaitingStreams() const { return double(waiting_) * kStream; }

absl::Duration FruitlessWork::OfItsEnd() {
  open_ = 1;  // The count may have been that of an earlier connection from the same peer.
  return double(std::exchange(waiting_, 0)) * kStream;
}

bool FruitlessWork::HoldsTooMuch() const {
  return held() > kMostPending + kRequest * double(std::min(open_, kMostRequests));
}

}  // namespace trainyard::controller
