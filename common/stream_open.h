// The key of initial metadata by which a controller says that it serves a stream. A stream may have
// no message for hours, and a client must know whether a controller was there.

#pragma once

namespace trainyard {

inline constexpr char kStreamOpen[] = "trainyard-stream-open";

}  // namespace trainyard
