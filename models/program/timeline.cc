#include "models/program/timeline.h"

#include <chrono>

namespace trainyard {

const char* Name(Track track) {
  switch (track) {
    case Track::kSteps:
      return "steps";
    case Track::kActions:
      return "actions";
    case Track::kCompute:
      return "compute";
    case Track::kCommunication:
      return "communication";
  }
  return "";
}

int64_t Timeline::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace trainyard
